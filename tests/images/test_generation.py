"""A prompt becomes a video, with everything denied."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from images.container import Mount
from images.engine import Image
from tests.images.conftest import Ask, Python

PROMPT = "a red circle moving right on a black background"

DECODE = """
import av, json, sys
with av.open(sys.argv[1]) as container:
    stream = container.streams.video[0]
    frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
print(json.dumps({
    "codec": stream.codec_context.name,
    "frames": len(frames),
    "shape": frames[0].shape,
    "spread": int(max(frame.max() for frame in frames)) - int(min(f.min() for f in frames)),
    "moves": any((frame != frames[0]).any() for frame in frames[1:]),
}))
"""


@pytest.mark.parametrize("user", [None, "12345:0"], ids=["its own user", "an unknown user"])
def test_a_video_without_network_root_or_capabilities(
    ask: Ask, python: Python, outputs: Mount, user: str | None
):
    outcome = ask("generate", "--prompt", PROMPT, user=user, mounts=(outputs,))
    assert outcome.code == 0, outcome.errors
    (video,) = outputs.source.glob("*.mp4")
    seen = json.loads(python(DECODE, f"/outputs/{video.name}", mounts=(outputs,)))
    assert seen["codec"] == "h264"
    assert seen["frames"] > 1
    assert seen["shape"][2] == 3
    assert seen["spread"] > 100
    assert seen["moves"]
    assert video.stat().st_uid == (12345 if user else 1000)


def test_an_image_by_name(ask: Ask, outputs: Mount):
    outcome = ask(
        *("generate", "--prompt", PROMPT, "--num-frames", "1"),
        *("--output-path", "outputs", "--output-file-name", "circle.png"),
        mounts=(outputs,),
    )
    assert outcome.code == 0, outcome.errors
    assert (outputs.source / "circle.png").read_bytes().startswith(b"\x89PNG")


def test_what_attention_ran_is_reported(ask: Ask, outputs: Mount):
    outcome = ask("generate", "--prompt", PROMPT, "--json", mounts=(outputs,))
    assert outcome.code == 0, outcome.errors
    assert "torch_sdpa" in outcome.output


def test_outputs_that_cannot_be_written_are_refused_before_the_model_loads(ask: Ask):
    outcome = ask("generate", "--prompt", PROMPT)
    assert outcome.code == 2
    assert "outputs" in outcome.errors


def test_torch_compiles_without_a_compiler_where_none_is_needed(python: Python):
    code = """
import torch
f = torch.compile(lambda x: x.sin() + 1, backend="aot_eager", fullgraph=True)
print(f(torch.zeros(3)).sum().item())
"""
    assert float(python(code)) == 3.0


def test_every_library_that_was_stripped_still_works(python: Python):
    code = """
import av, hf_xet, numpy, tokenizers, torch
av.VideoFrame.from_ndarray(numpy.zeros((16, 16, 3), "u1")).reformat(format="yuv420p")
torch.linalg.svd(torch.eye(4)); torch.fft.fft(torch.ones(4))
tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a")).encode("a")
print("works")
"""
    assert python(code).strip() == "works"


def test_an_empty_folder_of_models_is_used_where_it_lies(ask: Ask, tmp_path: Path):
    models = tmp_path / "models"
    models.mkdir()
    models.chmod(0o1777)
    outcome = ask("models", mounts=(Mount(models, "/models", read_only=False),))
    assert outcome.code == 0, outcome.errors


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_docker_stop_ends_a_run_and_leaves_nothing_half_written(image: Image, outputs: Mount):
    generate = ("generate", "--prompt", PROMPT, "--num-inference-steps", "900")
    mount = f"{outputs.source}:/outputs"
    container = docker("run", "--detach", "--volume", mount, image.reference, *generate).strip()
    try:
        deadline = time.monotonic() + 180
        while "steps" not in docker("logs", container):
            assert time.monotonic() < deadline, docker("logs", container)
            time.sleep(0.5)
        docker("stop", "--time", "120", container)
        code = docker("inspect", "--format", "{{.State.ExitCode}}", container).strip()
        assert code == "130", docker("logs", container)
    finally:
        docker("rm", "--force", "--volumes", container)
    assert list(outputs.source.iterdir()) == []
