"""Take symbol tables that no loader reads out of libraries: `strip.py ENVIRONMENT "PATTERN ..."`.

`strip` can break a library that patchelf has rewritten, as wheels' libraries often are
(https://github.com/pypa/auditwheel/issues/716), so each one is loaded afterwards: what does
not load fails the build.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def libraries(site: Path, pattern: str) -> list[Path]:
    return sorted(path for path in site.glob(pattern) if path.is_file() and not path.is_symlink())


def load_each(environment: Path, found: list[Path]) -> int:
    load = "import ctypes, sys; [ctypes.CDLL(path) for path in sys.argv[1:]]"
    command = [str(environment / "bin" / "python"), "-c", load, *map(str, found)]
    return subprocess.run(command, check=False).returncode


def main(environment: Path, patterns: list[str]) -> int:
    (site,) = environment.glob("lib/python*/site-packages")
    stale, stripped = 0, []
    for pattern in patterns:
        found = libraries(site, pattern)
        if not found:
            stale += 1
            print(f"strip: nothing in {site} matches {pattern!r}", file=sys.stderr)
            continue
        before = sum(path.stat().st_size for path in found)
        subprocess.run(["strip", "--strip-unneeded", *map(str, found)], check=True)
        after = sum(path.stat().st_size for path in found)
        stripped += found
        print(f"strip: {(before - after) / 1e6:7.1f} MB  {pattern}")
    if load_each(environment, stripped):
        print("strip: a library does not load any more: drop its pattern", file=sys.stderr)
        return 1
    return min(stale, 1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2].split()))
