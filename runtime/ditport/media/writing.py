"""Files appear whole or not at all: written beside their place under another name, then renamed."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ditport.errors import DiskFull, OutputFailed, OutputRefused
from ditport.generation.request import Request
from ditport.media.formats import format_of
from ditport.media.provenance import Provenance

FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
UNKNOWN_SIDE: Final = 1024  # assumed for a request whose size the pipeline decides


@contextmanager
def whole_or_nothing(path: Path) -> Iterator[Path]:
    """A temporary path that takes the place of `path` if nothing fails, Ctrl-C included."""
    handle, name = tempfile.mkstemp(".partial", f".{path.name}.", path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp's is private
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise


def write(
    frames: Any, path: Path, request: Request, provenance: Provenance, quality: int | None
) -> None:
    """Encode frames into a file that appears whole or not at all."""
    from ditport.media import images, video

    container = format_of(path)
    assert container is not None, path  # naming gives every path a known suffix
    try:
        with whole_or_nothing(path) as temporary:
            if container == "mp4":
                video.write(frames, temporary, request.fps, provenance, quality)
            else:
                with temporary.open("wb") as file:
                    images.write(frames[0], file, container, provenance, quality)
    except OSError as error:
        if error.errno in FULL:
            raise DiskFull(
                f"The disk filled up while {path} was being written.",
                "Nothing was left behind.",
                "Free some space, or give another --output-path.",
            ) from error
        raise OutputFailed(f"{path} could not be written.", f"{error}") from error


def check_writable(paths: Iterable[Path]) -> None:
    """Raise OutputRefused for a path that cannot be written; makes the folders that are missing."""
    for folder in dict.fromkeys(path.parent for path in paths):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise OutputRefused(
                f"Nothing can be written to {folder}.",
                f"{error.strerror}.",
                "Give another --output-path.",
            ) from None
    for path in paths:
        if path.is_dir():
            raise OutputRefused(f"{path} is a folder, and a file is to be written there.")


def check_space(paths: Sequence[Path], requests: Sequence[Request]) -> None:
    """Raise DiskFull if the files will hardly fit: an estimate from the sizes that are asked."""
    needs: dict[Path, int] = {}
    for path, request in zip(paths, requests, strict=True):
        needs[path.parent] = needs.get(path.parent, 0) + estimated_bytes(path, request)
    for folder, need in needs.items():
        free = shutil.disk_usage(folder).free
        if need > free:
            raise DiskFull(
                f"There is not enough room in {folder}.",
                f"The output may take {need / 1e6:.1f} MB, and {free / 1e6:.1f} MB are free.",
                "Free some space, or give another --output-path.",
                before_loading=True,
            )


def estimated_bytes(path: Path, request: Request) -> int:
    """An upper estimate of a file's size: all of the pixels for pictures, a tenth for video."""
    raw = 3 * (request.height or UNKNOWN_SIDE) * (request.width or UNKNOWN_SIDE)
    if format_of(path) == "mp4":
        return raw * (request.num_frames or 1) // 10 + 64 * 1024
    return raw + 64 * 1024
