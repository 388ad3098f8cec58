"""Whole processes: the installed command on a small model and on the demo."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# A second thread only waits for its turn on a shared machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

Run = Callable[..., subprocess.CompletedProcess[str]]
SCRIPT = str(Path(sys.executable).with_name("ditport"))


@pytest.fixture(scope="session")
def small_wan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A WanPipeline folder that generates, random and tiny."""
    from tests.small_wan import save_small_wan

    return save_small_wan(tmp_path_factory.mktemp("models") / "small-wan")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A home of its own and no network."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return {**kept, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}


@pytest.fixture
def ditport(tmp_path: Path, environ: dict[str, str]) -> Run:
    """Run the installed command in an empty folder."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SCRIPT, *words],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    return run
