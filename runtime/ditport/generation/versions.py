"""The versions that an output depends on."""

from __future__ import annotations

import functools
from importlib.metadata import PackageNotFoundError, version
from typing import Final

PACKAGES: Final = ("ditport", "torch", "diffusers", "transformers")


@functools.cache
def versions() -> dict[str, str]:
    """Version by package name; what is not installed is left out."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
