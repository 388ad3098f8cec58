"""Requests: where each value comes from, prompt files, and what a model cannot do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ditport.errors import (
    DitportError,
    InputRefused,
    NotInThisVersion,
    PromptFileRefused,
    SizeRefused,
    UsageError,
)
from ditport.generation.checks import check, first_problem, vocabulary_notes
from ditport.generation.prompts import read_prompts
from ditport.generation.request import SamplingSettings, resolve
from ditport.models.description import ModelDescription
from ditport.models.folder import describe
from ditport.models.geometry import Geometry, geometry
from ditport.models.source import ModelSource
from tests.unit.ditport.model_folders import write_model


def model(folder: Path, **options: Any) -> ModelDescription:
    return describe(ModelSource("m", "folder", write_model(folder, **options)))


IMAGE_MODEL = {
    "pipeline": "FluxPipeline",
    "classes": {
        "transformer": ["diffusers", "FluxTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"],
        "scheduler": ["diffusers", "S"],
        "tokenizer": ["transformers", "T"],
    },
    "configs": {
        "transformer": {"_class_name": "FluxTransformer2DModel", "patch_size": 1},
        "vae": {"_class_name": "AutoencoderKL", "block_out_channels": [1, 2, 3, 4]},
    },
}


def test_asked_beats_advised_beats_the_pipeline(tmp_path: Path) -> None:
    advised = {"height": 64, "num_inference_steps": 8, "fps": 12, "negative_prompt": "bad"}
    (request,) = resolve(
        SamplingSettings(prompt="p", num_inference_steps=3), model(tmp_path, defaults=advised)
    )
    assert request.num_inference_steps == 3  # asked
    assert (request.height, request.fps, request.negative_prompt) == (64, 12, "bad")  # advised
    assert (request.width, request.num_frames, request.guidance_scale) == (832, 81, 5.0)
    assert request.seed == 42


def test_an_empty_negative_prompt_is_one(tmp_path: Path) -> None:
    settings = SamplingSettings(prompt="p", negative_prompt="")
    (request,) = resolve(settings, model(tmp_path, defaults={"negative_prompt": "bad"}))
    assert request.negative_prompt == ""


def test_size_and_its_parts(tmp_path: Path) -> None:
    (request,) = resolve(SamplingSettings(prompt="p", size=(128, 64), height=32), model(tmp_path))
    assert (request.width, request.height) == (128, 32)


def test_outputs_count_seeds_up(tmp_path: Path) -> None:
    settings = SamplingSettings(prompt="p", seed=7, num_outputs_per_prompt=3)
    assert [request.seed for request in resolve(settings, model(tmp_path))] == [7, 8, 9]


def test_image_pipelines_have_no_frames(tmp_path: Path) -> None:
    (request,) = resolve(SamplingSettings(prompt="p"), model(tmp_path, **IMAGE_MODEL))
    assert request.num_frames is None
    assert not request.is_video
    (request,) = resolve(SamplingSettings(prompt="p", num_frames=1), model(tmp_path, **IMAGE_MODEL))
    check(request, model(tmp_path, **IMAGE_MODEL))
    (request,) = resolve(SamplingSettings(prompt="p", num_frames=9), model(tmp_path, **IMAGE_MODEL))
    with pytest.raises(NotInThisVersion, match="makes images, not 9 frames"):
        check(request, model(tmp_path, **IMAGE_MODEL))


@pytest.mark.parametrize(
    ("pipeline", "configs", "expected"),
    [
        ("WanPipeline", {}, Geometry(16, 4)),  # its own check wants 16, its factors 8
        ("FluxPipeline", {}, Geometry(16)),
        ("StableDiffusionXLPipeline", {}, Geometry(8)),
        ("StableDiffusion3Pipeline", {"transformer": {"patch_size": 2}}, Geometry(16)),
        (
            "LTXPipeline",
            {"vae": {"_class_name": "AutoencoderKLLTXVideo"}},
            Geometry(32, 8),
        ),
        ("QwenImagePipeline", {"vae": {"_class_name": "AutoencoderKLQwenImage"}}, Geometry(16)),
        ("FluxPipeline", {"vae": {"_class_name": "Unheard"}}, Geometry()),
    ],
)
def test_geometry_of_families(
    tmp_path: Path, pipeline: str, configs: dict[str, Any], expected: Geometry
) -> None:
    if pipeline == "WanPipeline":
        described = model(tmp_path)
    else:
        own = {**IMAGE_MODEL["configs"], **configs}  # type: ignore[dict-item]
        own = {name: {"_class_name": "C", **config} for name, config in own.items()}
        described = model(tmp_path, **{**IMAGE_MODEL, "pipeline": pipeline, "configs": own})
    assert geometry(described) == expected


@pytest.mark.parametrize(("asked", "near"), [(1, 16), (100, 96), (104, 112), (64, 64)])
def test_the_nearest_length(asked: int, near: int) -> None:
    assert Geometry(16).nearest_length(asked) == near


@pytest.mark.parametrize(("asked", "near"), [(1, 1), (2, 1), (12, 13), (15, 17), (16, 17)])
def test_the_nearest_number_of_frames(asked: int, near: int) -> None:
    assert Geometry(16, 4).nearest_frames(asked) == near
    assert Geometry(16, 4).takes_frames(near)


@pytest.mark.parametrize(
    ("settings", "cause", "told"),
    [
        ({"height": 100, "width": 64}, SizeRefused, "--height 96 --width 64"),
        ({"num_frames": 12}, SizeRefused, "--num-frames 13"),
        ({"image_path": ("x.png",)}, InputRefused, "no image parameter"),
        ({"strength": 0.5}, UsageError, "takes no --strength"),
        ({"diffusers_kwargs": {"clip_skip": 1}}, UsageError, "no parameter clip_skip"),
        ({"prompt": ""}, UsageError, "nothing to generate"),
    ],
)
def test_refusals(
    tmp_path: Path, settings: dict[str, Any], cause: type[DitportError], told: str
) -> None:
    described = model(tmp_path)
    (request,) = resolve(SamplingSettings(**{"prompt": "p", **settings}), described)
    with pytest.raises(cause, match=told) as refused:
        check(request, described)
    assert refused.value.exit_code == 2


def test_image_to_video_needs_an_image_that_can_be_read(tmp_path: Path) -> None:
    described = model(tmp_path / "m", pipeline="WanImageToVideoPipeline")
    (request,) = resolve(SamplingSettings(prompt="p"), described)
    with pytest.raises(InputRefused, match="needs an input image"):
        check(request, described)
    for name, content, told in (
        ("absent.png", None, "No such file"),
        ("empty.png", b"", "It is empty"),
        ("text.png", b"hello there", "begins with b'hello there'"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        settings = SamplingSettings(prompt="p", image_path=(str(tmp_path / name),))
        (request,) = resolve(settings, described)
        with pytest.raises(InputRefused, match=told):
            check(request, described)
    from PIL import Image

    Image.new("RGB", (16, 16)).save(tmp_path / "good.png")
    settings = SamplingSettings(prompt="p", image_path=(str(tmp_path / "good.png"),))
    (request,) = resolve(settings, described)
    check(request, described)
    (tmp_path / "cut.png").write_bytes((tmp_path / "good.png").read_bytes()[:40])
    settings = SamplingSettings(prompt="p", image_path=(str(tmp_path / "cut.png"),))
    (request,) = resolve(settings, described)
    with pytest.raises(InputRefused, match=r"cut\.png"):
        check(request, described)


def test_words_that_a_small_model_never_saw(tmp_path: Path) -> None:
    advised = {"vocabulary": ["a", "red", "circle"], "note": "It draws circles."}
    described = model(tmp_path, defaults=advised)
    requests = resolve(SamplingSettings(prompt="a red elephant"), described)
    assert vocabulary_notes(requests, described) == (
        "m does not know the words elephant. It draws circles.",
    )
    requests = resolve(SamplingSettings(prompt="A red circle."), described)
    assert vocabulary_notes(requests, described) == ()


def prompts(tmp_path: Path, text: str, name: str = "p.txt", **base: Any) -> list[SamplingSettings]:
    (tmp_path / name).write_text(text)
    lines = read_prompts(str(tmp_path / name), SamplingSettings(**base))
    return [line.settings for line in lines]


def test_a_prompt_a_line(tmp_path: Path) -> None:
    found = prompts(tmp_path, "\ufeffone\n\n  two  \n", seed=5)
    assert [(each.prompt, each.seed) for each in found] == [("one", 5), ("two", 5)]


def test_json_lines_have_settings_of_their_own(tmp_path: Path) -> None:
    text = '{"prompt": "one", "seed": 3, "height": 32}\n"two"\n{"prompt": "x", "size": "8x4"}'
    one, two, three = prompts(tmp_path, text, size=(64, 64), seed=9)
    assert (one.prompt, one.seed, one.height, one.size) == ("one", 3, 32, None)
    assert (two.prompt, two.seed, two.size) == ("two", 9, (64, 64))
    assert three.size == (8, 4)


def test_a_line_may_name_its_file(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "one", "output_file_name": "a.mp4"}')
    (line,) = read_prompts(str(tmp_path / "p.jsonl"), SamplingSettings())
    assert line.file_name == "a.mp4"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"prompt": "a"}\n{"prompt"', "line 2 is not JSON"),
        ('{"prompt": "a"}\n{"seed": 3}', "line 2 has no prompt"),
        ('{"prompt": "a"}\n\n{"prompt": "b", "sede": 3}', "line 3.*Did you mean seed"),
        ('{"prompt": "a", "height": "tall"}', "line 1: height must be a whole number"),
        ('{"prompt": "a", "prompt_file": "b"}', "cannot name another"),
        ('{"prompt": "a", "output_file_name": "../b"}', "must be a file name"),
        ('{"prompt": "a"}\n[1]', "line 2 is not a JSON object"),
        ("\n \n", "holds no prompts"),
    ],
)
def test_broken_lines_are_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(PromptFileRefused, match=told):
        prompts(tmp_path, text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PromptFileRefused, match="No such file"):
        read_prompts(str(tmp_path / "absent"), SamplingSettings())
    (tmp_path / "latin").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(PromptFileRefused, match="not UTF-8"):
        read_prompts(str(tmp_path / "latin"), SamplingSettings())


def test_a_bad_line_is_found_before_anything_runs(tmp_path: Path) -> None:
    described = model(tmp_path)
    good, bad = (
        resolve(SamplingSettings(prompt="p", num_frames=frames), described)[0]
        for frames in (13, 12)
    )
    with pytest.raises(SizeRefused, match=r"^f, line 2: m cannot make 12 frames"):
        first_problem([("f, line 1", good), ("f, line 2", bad)], described)
