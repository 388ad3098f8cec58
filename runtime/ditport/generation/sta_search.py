"""Measuring STA windows on a model: full attention runs, what windows would change is kept."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from pathlib import Path

from ditport.errors import UsageError
from ditport.generation import attention
from ditport.generation.events import Loaded, Note, Saved, Sink, Started
from ditport.generation.job import Job
from ditport.generation.memory_errors import out_of_memory
from ditport.generation.request import Request
from ditport.generation.run import generate
from ditport.models import compilation, lora, memory
from ditport.models.load import load
from polyattn.preferences import AttentionPreferences
from polyattn.preferences import Request as BackendRequest
from polyattn.sparse.options import Triple
from polyattn.sparse.tuning import Losses


def search(
    job: Job, folder: Path, tile: Triple, windows: tuple[Triple, ...], sink: Sink
) -> tuple[Path, ...]:
    """A losses file per request; those that are there already are kept. Returns all."""
    if job.preferences.requests:
        words = job.preferences.requests[0][0]
        raise UsageError(f"sta search measures sliding_tile_attn; leave out {words}.")
    paths = [folder / _file_name(job, request, tile, windows) for request in job.requests]
    wanted = [number for number, path in enumerate(paths) if not path.is_file()]
    if len(wanted) < len(paths):
        sink(Note(f"{len(paths) - len(wanted)} of {len(paths)} prompts are measured already."))
    if wanted:
        folder.mkdir(parents=True, exist_ok=True)
        _measure(job, {number: paths[number] for number in wanted}, tile, windows, sink)
    return tuple(paths)


def _measure(
    job: Job, paths: dict[int, Path], tile: Triple, windows: tuple[Triple, ...], sink: Sink
) -> None:
    from polyattn.sparse.search import Recorder  # torch from here on

    asked = AttentionPreferences(backend=BackendRequest("sliding_tile_attn"))
    recorder = Recorder(tile, windows)
    with out_of_memory(job):
        start = time.perf_counter()
        pipeline = load(job.model, job.load, sink)
        lora.apply(job.lora, pipeline)
        memory.apply(job.memory, pipeline)
        compilation.apply(job.compilation, pipeline)
        attached = attention.attach(pipeline, asked, job.facts)
        attached.progress.recorder = recorder
        sink(Loaded(type(pipeline).__name__, time.perf_counter() - start))
        for number, path in paths.items():
            request = job.requests[number]
            sink(Started(number, len(job.requests), request.prompt, request.seed))
            generate(pipeline, request, number, len(job.requests), sink)
            recorder.take().write(path)
            sink(Saved(str(path)))


def _file_name(job: Job, request: Request, tile: Triple, windows: tuple[Triple, ...]) -> str:
    """The same for the same measurement, so that an interrupted search goes on."""
    source = job.model.source
    what = [source.name, source.revision, request.to_json(), tile, windows]
    digest = hashlib.sha256(json.dumps(what, default=str).encode()).hexdigest()
    return f"losses_{digest[:16]}.json"


def table(losses: Losses) -> str:
    """The windows with their density and mean loss, densest first."""
    means = [
        sum(head[index] for layers in losses.l2 for heads in layers for head in heads)
        for index in range(len(losses.candidates))
    ]
    count = len(losses.l2) * len(losses.l2[0]) * len(losses.l2[0][0])
    rows = sorted(
        zip(losses.densities, losses.candidates, means, strict=True), key=lambda row: -row[0]
    )
    lines = [
        f"grid {losses.grid}, tiles of {'x'.join(map(str, losses.tile))} tokens, {count} entries",
        "window       density  mean squared difference",
        *(f"{'x'.join(map(str, w)):12} {d:7.3f}  {m / count:.3e}" for d, w, m in rows),
    ]
    return "\n".join(lines)


def as_data(losses: Losses) -> dict[str, object]:
    """What --json prints of a search."""
    return dataclasses.asdict(losses)
