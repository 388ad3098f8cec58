"""Running a job on a small real pipeline: files, results, failures."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from ditport.cli.generate import parse
from ditport.cli.inspect import read
from ditport.cli.summary import summary
from ditport.errors import GenerationFailed, OutOfMemory
from ditport.generation import run as running
from ditport.generation.events import Encoding, Event, Saved, Started, Step, ignore
from ditport.generation.job import Job, plan
from ditport.generation.memory_errors import out_of_memory

SMALL = ["--height", "32", "--width", "32", "--num-frames", "5", "--num-inference-steps", "2"]


def job(small_wan: Path, out: Path, *words: str) -> Job:
    base = ["--model-path", str(small_wan), "--prompt", "a red circle", "--device", "cpu"]
    return plan(parse([*base, *SMALL, "--output-path", str(out), *words]), {}, ignore)


def test_a_video_with_everything_told(small_wan: Path, tmp_path: Path) -> None:
    seen: list[Event] = []
    result = running.run(job(small_wan, tmp_path / "a.mp4"), seen.append)
    (file,) = result.files
    assert file.path == str(tmp_path / "a.mp4")
    assert (file.frames, file.height, file.width, file.seed) == (5, 32, 32, 42)
    assert set(result.seconds) == {"load", "generate", "write"}
    assert [(e.step, e.steps) for e in seen if isinstance(e, Step)] == [(1, 2), (2, 2)]
    kinds = [type(event) for event in seen]
    assert kinds.index(Started) < kinds.index(Step) < kinds.index(Encoding) < kinds.index(Saved)

    report = result.to_json()["attention"]["attention"]
    ran = {(row["component"], row["role"]): row["calls"] for row in report}
    assert ran[("transformer", "self")] == ran[("transformer", "cross")] == 2 * 2 * 2
    json.dumps(result.to_json())
    assert "torch_sdpa" in summary(result)
    assert "seed 42" in summary(result)

    written = read(tmp_path / "a.mp4")
    assert written.request["prompt"] == "a red circle"
    assert written.request["num_inference_steps"] == 2
    assert written.model["name"] == str(small_wan)
    assert written.versions["torch"]
    assert written.attention is not None
    assert "seconds" not in written.to_json()


def test_frames_are_the_pipelines_own(small_wan: Path) -> None:
    import torch
    from diffusers import DiffusionPipeline

    pipeline = DiffusionPipeline.from_pretrained(small_wan)
    pipeline.set_progress_bar_config(disable=True)
    made = job(small_wan, Path("unused.mp4"), "--no-save-output")
    ours = running.generate(pipeline, made.requests[0], 0, 1, ignore)
    theirs = pipeline(
        "a red circle",
        height=32,
        width=32,
        num_frames=5,
        num_inference_steps=2,
        generator=torch.Generator().manual_seed(42),
    ).frames[0]
    assert ours.dtype == "uint8"
    assert abs(ours / 255 - theirs).max() <= 0.5 / 255 + 1e-6


def test_several_outputs_have_seeds_and_names_of_their_own(small_wan: Path, tmp_path: Path) -> None:
    made = job(small_wan, tmp_path / "a.png", "--num-frames", "1", "--num-outputs-per-prompt", "2")
    result = running.run(made, ignore)
    assert [Path(file.path or "").name for file in result.files] == ["a-1.png", "a-2.png"]
    assert [file.seed for file in result.files] == [42, 43]
    first, second = (read(tmp_path / f"a-{n}.png") for n in (1, 2))
    assert first.request["seed"] == 42
    # Each file tells of its own calls, not of all that ran so far.
    assert first.attention is not None
    assert second.attention is not None
    assert [row["calls"] for row in first.attention["attention"]] == [
        row["calls"] for row in second.attention["attention"]
    ]


def test_a_picture_is_meant_where_its_name_says_so(small_wan: Path, tmp_path: Path) -> None:
    words = ["--model-path", str(small_wan), "--prompt", "p", "--output-path", "a.webp"]
    made = plan(
        parse([*words, "--size", "32x32", "--device", "cpu", "--no-save-output"]), {}, ignore
    )
    assert made.requests[0].num_frames == 1


def test_prompt_files_serve_every_line(small_wan: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"prompt": "a red circle", "seed": 1}\n{"prompt": "x", "num_frames": 1}')
    words = ["--model-path", str(small_wan), "--prompt-file", str(prompts), "--device", "cpu"]
    made = plan(parse([*words, *SMALL, "--output-path", f"{tmp_path}/"]), {}, ignore)
    assert [(r.prompt, r.seed, r.num_frames) for r in made.requests] == [
        ("a red circle", 1, 5),
        ("x", 42, 1),
    ]
    assert [path.suffix for path in made.paths] == [".mp4", ".png"]


class Broken:
    """A pipeline whose call fails, or gives what is no picture."""

    components: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    def set_progress_bar_config(self, **_: Any) -> None:
        pass

    def __call__(self, prompt: str, num_frames: int, generator: Any, output_type: str) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return type("Made", (), {"frames": self.outcome})


def test_values_that_are_no_numbers_are_told(small_wan: Path) -> None:
    import numpy

    request = job(small_wan, Path("x.mp4"), "--no-save-output").requests[0]
    black = numpy.full((1, 5, 8, 8, 3), numpy.nan)
    with pytest.raises(GenerationFailed, match="--attention-backend torch_sdpa"):
        running.generate(Broken(black), request, 0, 1, ignore)


def test_what_a_pipeline_raises_is_told(small_wan: Path) -> None:
    request = job(small_wan, Path("x.mp4"), "--no-save-output").requests[0]
    with pytest.raises(GenerationFailed, match="ValueError: too wide"):
        running.generate(Broken(ValueError("too wide")), request, 0, 1, ignore)


@pytest.mark.parametrize("on_gpu", [False, True])
def test_out_of_memory_tells_size_and_what_helps(small_wan: Path, on_gpu: bool) -> None:
    import torch

    made = job(small_wan, Path("x.mp4"), "--no-save-output")
    error: Exception
    if on_gpu:
        made = dataclasses.replace(
            made, device="cuda", memory=dataclasses.replace(made.memory, device="cuda")
        )
        error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB.")
    else:
        error = RuntimeError("can't allocate memory: you tried to allocate 999 bytes.")
    with pytest.raises(OutOfMemory) as told, out_of_memory(made):
        raise error
    assert told.value.exit_code == 3
    assert ("2.50 GiB" if on_gpu else "999 bytes") in told.value.cause
    assert "32x32, 5 frames" in told.value.evidence
    assert ("--performance-mode memory" if on_gpu else "--dtype bf16") in told.value.remedy


def test_memory_that_is_out_is_not_called_a_failed_call(small_wan: Path) -> None:
    request = job(small_wan, Path("x.mp4"), "--no-save-output").requests[0]
    error = RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes.")
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
        running.generate(Broken(error), request, 0, 1, ignore)


class Recording(Broken):
    """A pipeline that takes images and keeps what it was called with."""

    _execution_device = "cpu"

    def __call__(  # type: ignore[override]
        self, image: Any, prompt: str, num_frames: int, frame_rate: float, generator: Any
    ) -> Any:
        self.called = {"image": image, "num_frames": num_frames, "frame_rate": frame_rate}
        return type("Made", (), {"images": self.outcome})


def test_images_and_frame_rates_reach_the_pipeline(small_wan: Path, tmp_path: Path) -> None:
    import numpy
    from PIL import Image

    for name, mode in (("one.png", "RGBA"), ("two.png", "L")):
        Image.new(mode, (8, 8)).save(tmp_path / name)
    paths = (str(tmp_path / "one.png"), str(tmp_path / "two.png"))
    request = job(small_wan, Path("x.mp4"), "--no-save-output").requests[0]
    pipeline = Recording(numpy.full((2, 8, 8, 3), 0.5))
    frames = running.generate(pipeline, dataclasses.replace(request, images=paths), 0, 1, ignore)
    assert [image.mode for image in pipeline.called["image"]] == ["RGB", "RGB"]
    assert pipeline.called["frame_rate"] == request.fps
    assert frames.shape == (1, 8, 8, 3)  # one picture of those that the pipeline made
    assert (frames == 128).all()
    running.generate(pipeline, dataclasses.replace(request, images=paths[:1]), 0, 1, ignore)
    assert pipeline.called["image"].size == (8, 8)


def test_attention_that_fails_while_running_is_told(small_wan: Path) -> None:
    from polyattn.errors import AttentionError

    request = job(small_wan, Path("x.mp4"), "--no-save-output").requests[0]
    with pytest.raises(GenerationFailed, match="cannot serve this"):
        running.generate(Broken(AttentionError("cannot serve this")), request, 0, 1, ignore)
