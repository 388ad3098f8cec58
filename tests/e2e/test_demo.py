"""The embedded demo through the command: defaults of its own, and its note."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ditport.models.source import DEMO_FOLDER
from tests.e2e.conftest import Run

pytestmark = pytest.mark.skipif(
    not (DEMO_FOLDER / "model_index.json").is_file(), reason="the demo model is not trained yet"
)


def test_one_option_is_enough(ditport: Run, tmp_path: Path) -> None:
    done = ditport(
        "generate", "--prompt", "a red circle moving right on a black background", "--json"
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    (file,) = result["files"]
    advised = json.loads((DEMO_FOLDER / "generation_defaults.json").read_text())
    assert (file["width"], file["height"]) == (advised["width"], advised["height"])
    assert (file["frames"], file["fps"]) == (advised["num_frames"], advised["fps"])
    assert result["notes"] == []
    shown = json.loads(ditport("inspect", file["path"], "--json").stdout)
    assert shown["request"]["num_inference_steps"] == advised["num_inference_steps"]
    assert shown["request"]["guidance_scale"] == advised["guidance_scale"]


def test_words_that_it_does_not_know_are_answered(ditport: Run, tmp_path: Path) -> None:
    words = ["--prompt", "a cat walks on the grass", "--output-path", "cat.png"]
    done = ditport("generate", *words)
    assert done.returncode == 0, done.stderr
    assert "note: demo does not know the words cat, walks, grass" in done.stderr
    assert (tmp_path / "cat.png").is_file()


def test_it_is_listed_with_the_models(ditport: Run) -> None:
    listed = json.loads(ditport("models", "--json").stdout)
    (demo,) = [model for model in listed if model["name"] == "demo"]
    assert demo["pipeline"] == "WanPipeline"
    assert demo["problem"] is None
    assert 0 < demo["size_bytes"] <= 10_000_000
