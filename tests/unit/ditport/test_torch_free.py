"""What must not import torch or diffusers, run with both blocked, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.ditport.model_folders import write_model

BLOCKED = ("torch", "diffusers", "transformers", "accelerate", "numpy")

# Refuses the imports, runs every command line, and prints their exit codes and messages.
PROGRAM = """
import contextlib, importlib.abc, importlib.machinery, io, json, sys

class Refusing(importlib.abc.Loader):
    def exec_module(self, module):
        raise AssertionError(f"{module.__name__} was imported")

class Blocker(importlib.abc.MetaPathFinder):
    # The spec is still found: looking where a package is installed is no import of it.
    def find_spec(self, name, path=None, target=None):
        if name not in BLOCKED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None:
            spec.loader = Refusing()
        return spec

sys.meta_path.insert(0, Blocker())
from ditport.cli import main

results = []
for words in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as exit:
            code = exit.code or 0
    results.append([code, out.getvalue(), err.getvalue()])
json.dump(results, sys.stdout)
"""


def run_blocked(
    command_lines: list[list[str]], cwd: Path, **environ: str
) -> list[tuple[int, str, str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("BLOCKED", repr(BLOCKED))],
        input=json.dumps(command_lines),
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environ},
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [(code, out, err) for code, out, err in json.loads(done.stdout)]


def test_help_and_version(tmp_path: Path) -> None:
    lines = [["--help"], ["--version"], ["generate", "--help"], ["download", "--help"]]
    lines += [["models", "--help"], ["inspect", "--help"]]
    for code, out, err in run_blocked(lines, tmp_path):
        assert (code, err) == (0, "")
        assert out


REFUSALS = [
    # (words after --model-path wan --prompt p, what the message says)
    (["--attention-backend", "sage_atn"], "'sage_attn'"),
    (["--attention-backend", "sage_attn"], "sage_attn"),
    (["--component-attention-backends", "txt_encoder=fa"], "text_encoder"),
    (["--component-attention-backends", "transformer.crss=fa"], "cross"),
    (["--attention-backend-config", "absent.json"], "absent.json"),
    (["--height", "100"], "--height 96"),
    (["--width", "63", "--height", "64"], "--width 64"),
    (["--num-frames", "12"], "--num-frames 13"),
    (["--image", "absent.png"], "no input image"),
    (["--output-path", "a.gif"], "Known: .png"),
    (["--output-path", "a.png", "--num-frames", "5"], "cannot hold a video"),
    (["--output-path", "/proc/none/a.mp4"], "Nothing can be written"),
    (["--dtype", "int4"], "--dtype must be one of"),
    (["--device", "tpu"], "is no device"),
    (["--device", "mps"], "no mps device"),
    (["--num-gpus", "8"], "--num-gpus 8"),
    (["--lora-path", "absent.safetensors"], "no LoRA"),
    (["--vae-path", "absent"], "--vae-path absent"),
    (["--vea-path", "absent"], "vae"),
    (["--revision", "main"], "has no meaning"),
    (["--single-file-config", "x"], "goes with a .safetensors file"),
    (["--dit-cpu-offload", "--dit-layerwise-offload"], "exclude each other"),
    (["--text-encoder-precisions", "bf16", "bf16"], "1 text encoder"),
    (["--prompt-file", "absent.txt"], "both given"),
]


@pytest.mark.skipif(sys.platform == "darwin", reason="has an mps device and no /proc")
def test_refusals_before_anything_is_loaded(tmp_path: Path) -> None:
    write_model(tmp_path / "wan")
    base = ["generate", "--model-path", "wan", "--prompt", "p"]
    lines = [base + extra for extra, _ in REFUSALS]
    results = run_blocked(lines, tmp_path, CUDA_VISIBLE_DEVICES="")
    for (extra, told), (code, _, err) in zip(REFUSALS, results, strict=True):
        assert code == 2, (extra, err)
        assert told in err, (extra, err)
        assert "Traceback" not in err, (extra, err)


def test_models_that_are_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "foreign", pipeline="NoSuchPipeline")
    write_model(tmp_path / "half")
    (tmp_path / "half" / "vae" / "diffusion_pytorch_model.safetensors").unlink()
    (tmp_path / "empty").mkdir()
    (tmp_path / "pickle.ckpt").write_bytes(b"x")
    cases = {
        "foreign": "NoSuchPipeline",
        "half": "has a config and no weights",
        "empty": "It is empty",
        "pickle.ckpt": ".safetensors",
        "nowhere": "no Hugging Face id",
        "owner/name": "offline",
    }
    lines = [["generate", "--model-path", name, "--prompt", "p"] for name in cases]
    for (name, told), (code, _, err) in zip(
        cases.items(), run_blocked(lines, tmp_path, HF_HUB_OFFLINE="1"), strict=True
    ):
        assert code == 2, (name, err)
        assert told in err, (name, err)
