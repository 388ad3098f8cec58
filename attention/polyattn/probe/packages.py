"""What is installed, from package metadata and files: nothing is imported."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path
from typing import Final

from polyattn import capabilities
from polyattn.facts import PackageFacts, TorchFacts
from polyattn.probe.host import Host
from polyattn.vocabulary import PackageState

# Beside those that rows need: what every kernel stands on.
ALWAYS: Final = ("torch", "triton")

# distribution -> (another one with the same import name, a path that only the right one has, what
# the other is). PyPI's `aiter` has nothing to do with AMD's (facts/packaging.md, hazard 7).
NAMESAKES: Final = {"amd-aiter": ("aiter", "aiter/ops", "the asyncio helper from PyPI")}


def names() -> tuple[str, ...]:
    """The distributions that facts mention: what rows need, and what everything stands on."""
    needed = (row.needs.package for row in capabilities.rows())
    return tuple(dict.fromkeys((*ALWAYS, *(name for name in needed if name))))


def packages(host: Host) -> tuple[PackageFacts, ...]:
    """Each of `names()`: absent, installed, or another project under its import name."""
    return tuple(_package(name, host) for name in names())


def torch_facts(host: Host) -> TorchFacts | None:
    """The installed torch by its version file, or by the local part of its version."""
    found = _find("torch", host)
    if found is None:
        return None
    text = _text(found.files, "torch/version.py")
    if text is not None:
        return TorchFacts(found.version, _assigned(text, "cuda"), _assigned(text, "hip"))
    local = found.version.partition("+")[2]
    cuda, rocm = re.fullmatch(r"cu(\d+)(\d)", local), re.fullmatch(r"rocm([\d.]+)", local)
    return TorchFacts(
        found.version,
        f"{cuda.group(1)}.{cuda.group(2)}" if cuda else None,
        rocm.group(1) if rocm else None,
    )


@dataclass(frozen=True)
class _Installed:
    version: str
    files: Distribution


def _package(name: str, host: Host) -> PackageFacts:
    found = _find(name, host)
    other, path, described = NAMESAKES.get(name, (name, "", ""))
    namesake = _find(other, host) if other != name else None
    if namesake is not None and not _holds(namesake.files, path):
        return PackageFacts(
            name,
            PackageState.FOREIGN,
            found.version if found else None,
            f"the package {other} {namesake.version}, {described}, is installed under the same "
            f"import name; uninstall {other}, then install {name}",
        )
    # Built from its repository, AMD's may carry the short name: then the files decide.
    installed = found or namesake
    if installed is None:
        return PackageFacts(name, PackageState.ABSENT)
    return PackageFacts(name, PackageState.INSTALLED, installed.version)


def _find(name: str, host: Host) -> _Installed | None:
    for found in Distribution.discover(name=name, path=list(host.python_path)):
        # Read as a text: what `metadata` does for a folder without one (a half-removed install)
        # differs between Python versions.
        text = found.read_text("METADATA") or found.read_text("PKG-INFO") or ""
        version = re.search(r"^Version:[ \t]*(\S+)", text, re.MULTILINE)
        if version:
            return _Installed(version.group(1), found)
    return None


def _holds(found: Distribution, path: str) -> bool:
    return Path(str(found.locate_file(path))).exists()


def _text(found: Distribution, path: str) -> str | None:
    try:
        return Path(str(found.locate_file(path))).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _assigned(text: str, name: str) -> str | None:
    match = re.search(rf"^{name}\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return match.group(1) if match else None
