"""Running a Job: load, attach, generate, write. The only place that drives a pipeline."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ditport.errors import DitportError, GenerationFailed
from ditport.generation import attention
from ditport.generation.events import (
    Encoding,
    Loaded,
    Note,
    Saved,
    Sink,
    Started,
    Step,
)
from ditport.generation.job import Job
from ditport.generation.memory_errors import out_of_memory
from ditport.generation.request import Request
from ditport.generation.result import OutputFile, Result
from ditport.generation.versions import versions
from ditport.media.provenance import Provenance
from ditport.media.writing import write
from ditport.models import compilation, lora, memory
from ditport.models.load import load
from polyattn.errors import AttentionError


class Stopwatch:
    """Seconds per stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time inside to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def run(job: Job, sink: Sink) -> Result:
    """Load the model and serve every request."""
    watch = Stopwatch()
    for note in job.notes:
        sink(Note(note))
    with out_of_memory(job):
        with watch.stage("load"):
            pipeline = load(job.model, job.load, sink)
            lora.apply(job.lora, pipeline)
            memory.apply(job.memory, pipeline)
            compilation.apply(job.compilation, pipeline)
            attached = attention.attach(pipeline, job.preferences, job.facts)
        sink(Loaded(type(pipeline).__name__, watch.seconds["load"]))
        files = tuple(
            _serve(job, index, pipeline, attached, watch, sink)
            for index in range(len(job.requests))
        )
    return Result(
        files=files,
        model=_model(job),
        device=job.device,
        dtype=job.load.precision.default,
        seconds=watch.seconds,
        attention=attached.report(),
        notes=job.notes,
        versions=versions(),
    )


def _serve(
    job: Job, index: int, pipeline: Any, attached: Any, watch: Stopwatch, sink: Sink
) -> OutputFile:
    request, total = job.requests[index], len(job.requests)
    sink(Started(index, total, request.prompt, request.seed))
    before, start = attached.snapshot(), time.perf_counter()
    with watch.stage("generate"):
        frames = generate(pipeline, request, index, total, sink)
    report = attached.report(since=before)
    path = job.paths[index] if job.paths else None
    count, height, width = frames.shape[:3]
    if path is not None:
        sink(Encoding(str(path), count))
        made = {**request.to_json(), "height": height, "width": width}
        provenance = Provenance(
            request=made,
            model=_model(job),
            versions=versions(),
            platform={"device": job.device, "dtype": job.load.precision.default},
            attention=report.to_json(),
        )
        with watch.stage("write"):
            write(frames, path, request, provenance, job.quality)
        sink(Saved(str(path)))
    return OutputFile(
        path=str(path) if path else None,
        prompt=request.prompt,
        seed=request.seed,
        width=width,
        height=height,
        frames=count,
        fps=request.fps if request.is_video else None,
        size_bytes=path.stat().st_size if path else 0,
        seconds=round(time.perf_counter() - start, 3),
    )


def generate(pipeline: Any, request: Request, index: int, total: int, sink: Sink) -> Any:
    """Call the pipeline: uint8 RGB frames [frames, height, width, 3]."""
    import numpy
    import torch

    place = pipeline._execution_device if request.generator_device == "device" else "cpu"
    arguments: dict[str, Any] = {
        "prompt": request.prompt,
        "negative_prompt": request.negative_prompt,
        "height": request.height,
        "width": request.width,
        "num_frames": request.num_frames,
        "num_inference_steps": request.num_inference_steps,
        "guidance_scale": request.guidance_scale,
        "generator": torch.Generator(place).manual_seed(request.seed),
        "output_type": "np",
        **dict(request.extra),
    }
    arguments = {name: value for name, value in arguments.items() if value is not None}
    parameters = _parameters(pipeline)
    if request.images:
        arguments["image"] = _images(request.images)
    if "frame_rate" in parameters:
        arguments.setdefault("frame_rate", request.fps)
    if "callback_on_step_end" in parameters:
        steps = request.num_inference_steps or 0

        def done(_: Any, step: int, __: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            sink(Step(index, total, step + 1, steps or pipeline.num_timesteps))
            return tensors

        arguments["callback_on_step_end"] = done
    known = {name: value for name, value in arguments.items() if name in parameters}
    pipeline.set_progress_bar_config(disable=True)
    try:
        made = pipeline(**(known if parameters else arguments))
    except (DitportError, MemoryError, torch.OutOfMemoryError):
        raise
    except AttentionError as error:
        raise GenerationFailed(str(error)) from error
    except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        if "memory" in str(error).lower():
            raise  # out_of_memory() knows the kinds
        raise GenerationFailed(
            f"{type(pipeline).__name__} failed.", f"{type(error).__name__}: {error}"
        ) from error
    frames = numpy.asarray(made.frames[0] if hasattr(made, "frames") else made.images[:1])
    if not numpy.isfinite(frames).all():
        raise GenerationFailed(
            "The output is not a picture: it holds values that are no numbers.",
            f"Attention or precision overflowed in {type(pipeline).__name__}.",
            "Try --attention-backend torch_sdpa, or --vae-precision fp32.",
        )
    return (frames.clip(0, 1) * 255).round().astype("uint8")


def _parameters(pipeline: Any) -> frozenset[str]:
    import inspect

    return frozenset(inspect.signature(type(pipeline).__call__).parameters)


def _images(names: tuple[str, ...]) -> Any:
    from PIL import Image

    images = [Image.open(Path(name).expanduser()).convert("RGB") for name in names]
    return images[0] if len(images) == 1 else images


def _model(job: Job) -> dict[str, Any]:
    source = job.model.source
    facts = {
        "name": source.name,
        "kind": source.kind,
        "revision": source.revision,
        "pipeline": job.model.pipeline,
        "loras": [vars(each) for each in job.lora.loras],
    }
    return {name: value for name, value in facts.items() if value}
