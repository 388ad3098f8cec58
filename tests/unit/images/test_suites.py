from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from images import suites
from images.engine import Outcome
from images.errors import ImagesError, PromiseBroken
from images.platforms import load
from tests.unit.images.fake_engine import FakeEngine

CPU = load().variant("cpu")


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """pytest for the image, as if installed before."""
    monkeypatch.setattr(suites, "TOOLS", tmp_path)
    folder = suites.tools_folder(CPU)
    (folder / "pytest").mkdir(parents=True)
    return folder


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What would run on this host."""
    ran: list[list[str]] = []

    def run(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(argv)
        return subprocess.CompletedProcess(argv, 0)

    monkeypatch.setattr(subprocess, "run", run)
    return ran


def test_the_matrix_runs_with_nothing_but_tests_and_pytest_mounted(tools: Path):
    container = suites.matrix_container(CPU, tools, ("-k", "causal"))
    assert container.command[-3:] == ("tests/matrix", "-k", "causal")
    assert all(mount.read_only for mount in container.mounts)
    assert container.network == "none"
    assert container.user == "12345:0"
    assert {mount.target for mount in container.mounts} == {
        "/tools",
        "/src/tests",
        "/src/pyproject.toml",
    }


@pytest.mark.usefixtures("tools")
def test_both_suites_run_and_the_second_reports(outside: list[list[str]]):
    engine = FakeEngine()
    assert suites.run(CPU, engine, ()) == 0
    assert len(engine.ran) == 1
    assert [argv[-1] for argv in outside] == ["tests/images"]


@pytest.mark.usefixtures("tools")
def test_a_failed_matrix_does_not_hide_the_other_suite(outside: list[list[str]]):
    engine = FakeEngine({"python": Outcome(1, "1 failed, 3 passed", "")})
    with pytest.raises(PromiseBroken, match="1 failed, 3 passed"):
        suites.run(CPU, engine, ())
    assert len(outside) == 1


@pytest.mark.usefixtures("tools", "outside")
def test_an_empty_matrix_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(suites, "ROOT", tmp_path)
    with pytest.raises(PromiseBroken, match="holds no test"):
        suites.run(CPU, FakeEngine(), ())


def test_pytest_for_the_image_is_hash_pinned_and_for_its_python(tmp_path: Path):
    command = suites.install_command(CPU, tmp_path)
    assert "--require-hashes" in command
    assert command[command.index("--python-version") + 1] == CPU.python


def test_what_cannot_be_installed_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(suites, "TOOLS", tmp_path)
    monkeypatch.setattr(subprocess, "run", lambda argv, **_: subprocess.CompletedProcess(argv, 2))
    with pytest.raises(ImagesError, match="pip exited 2"):
        suites.install_tools(CPU)
