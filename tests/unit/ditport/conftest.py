"""Fixtures: a model folder written by hand without torch, and a small real Wan pipeline."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Small tensors on a shared machine: a second thread only waits for its turn.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """A complete WanPipeline folder as far as anything torch-free looks at it."""
    from tests.unit.ditport.model_folders import write_model

    return write_model(tmp_path / "wan")


@pytest.fixture(scope="session")
def small_wan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A WanPipeline folder that generates, random and tiny."""
    from tests.small_wan import save_small_wan

    return save_small_wan(tmp_path_factory.mktemp("models") / "small-wan")


@pytest.fixture(autouse=True)
def own_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the developer's cache, token or endpoint."""
    for name in ("HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE", "DITPORT_ATTENTION_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
