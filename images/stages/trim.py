"""Remove what no run loads: `trim.py ENVIRONMENT "PATTERN ..."`, below its site-packages."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def matches(site: Path, pattern: str) -> list[Path]:
    """What `pattern` names now, outermost first; nested matches are left out."""
    found: list[Path] = []
    for path in sorted(site.glob(pattern)):
        if not any(parent in found for parent in path.parents):
            found.append(path)
    return found


def size(path: Path) -> int:
    if path.is_symlink() or path.is_file():
        return path.lstat().st_size
    return sum(each.lstat().st_size for each in path.rglob("*") if not each.is_dir())


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def site_packages(environment: Path) -> Path:
    (site,) = environment.glob("lib/python*/site-packages")
    return site


def main(environment: Path, patterns: list[str]) -> int:
    site = site_packages(environment)
    stale = 0
    for pattern in patterns:
        found = matches(site, pattern)
        freed = sum(size(path) for path in found)
        for path in found:
            remove(path)
        print(f"trim: {freed / 1e6:7.1f} MB  {pattern}")
        if not found:
            stale += 1
            print(
                f"trim: nothing in {site} matches {pattern!r}: correct or drop the pattern"
                " in images/platforms.toml",
                file=sys.stderr,
            )
    return min(stale, 1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2].split()))
