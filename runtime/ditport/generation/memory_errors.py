"""Out of memory, told with its size and the option that helps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ditport.errors import OutOfMemory
from ditport.generation.job import Job

# "Tried to allocate 2.50 GiB", "you tried to allocate 123 bytes"
SIZE = re.compile(r"tried to allocate ([\d.]+) ?([KMG]i?B|bytes)", re.IGNORECASE)


@contextmanager
def out_of_memory(job: Job) -> Iterator[None]:
    """Turn torch's and Python's out-of-memory errors into OutOfMemory."""
    try:
        yield
    except MemoryError as error:
        raise _told(job, str(error)) from error
    except RuntimeError as error:
        # torch.OutOfMemoryError is a RuntimeError; so is what a CPU allocation raises.
        kind = type(error).__name__
        if kind != "OutOfMemoryError" and not SIZE.search(str(error)):
            raise
        raise _told(job, str(error)) from error


def _told(job: Job, message: str) -> OutOfMemory:
    found = SIZE.search(message)
    size = f" {found[1]} {found[2]}" if found else " more memory"
    request = job.requests[0]
    where = "host memory" if job.device == "cpu" else f"memory of {job.device}"
    size_of_output = f"{request.width or '?'}x{request.height or '?'}"
    if request.is_video:
        size_of_output += f", {request.num_frames} frames"
    return OutOfMemory(
        f"Out of {where}: there was no room for{size}.",
        f"{job.model.source.name} was making {size_of_output} in {job.load.precision.default}.",
        remedy(job),
    )


def remedy(job: Job) -> str:
    """The next option that saves memory and is not yet used."""
    if job.device == "cpu":
        smaller = "fewer --num-frames" if job.requests[0].is_video else "a smaller --height --width"
        halved = "" if job.load.precision.default != "float32" else "--dtype bf16, or "
        return f"Try {halved}{smaller}."
    if job.memory.all_on_device:
        return "Try --performance-mode memory."
    if not job.memory.tiling:
        return "Try --vae-tiling."
    if not any(placement == "layerwise" for _, placement in job.memory.placements):
        return "Try --dit-layerwise-offload."
    return "Try a smaller --height --width, or fewer --num-frames."
