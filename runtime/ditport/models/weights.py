"""Looking into weight files without loading them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

LFS_POINTER: Final = b"version https://git-lfs"
HEADER_LIMIT: Final = 100 * 1024 * 1024  # the safetensors format's own


def damage(path: Path) -> str | None:
    """What is wrong with a weight file, as words that follow its name, or None."""
    size = path.stat().st_size
    if size == 0:
        return "is empty"
    with path.open("rb") as file:
        head = file.read(len(LFS_POINTER))
    if head == LFS_POINTER:
        return "is a git-lfs pointer, not the file it stands for (`git lfs pull` fetches that)"
    if path.suffix != ".safetensors":
        return None
    header = read_header(path)
    if header is None:
        return "is not a safetensors file"
    data = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    expected = _header_end(path) + max(data, default=0)
    if size < expected:
        return f"is cut off at {size:,} of {expected:,} bytes"
    return None


def read_header(path: Path) -> dict[str, Any] | None:
    """The header of a safetensors file: tensors by name. None if it is none."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= HEADER_LIMIT:
            return None
        try:
            header = json.loads(file.read(length))
        except ValueError:
            return None
    return header if isinstance(header, dict) else None


def weight_bytes(folder: Path) -> int:
    """How many bytes of weights a component folder holds."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def _header_end(path: Path) -> int:
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")
