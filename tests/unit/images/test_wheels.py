from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from images import lock, wheels
from images.errors import WheelRefused
from images.platforms import load

CPU = load().variant("cpu")
NAME = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "reachable", lambda _: False)


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """pip that brings a file of four bytes."""
    asked: list[list[str]] = []

    def run(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(argv)
        Path(argv[argv.index("--dest") + 1], NAME).write_bytes(b"torch"[:4])
        return subprocess.CompletedProcess(argv, 0)

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def admit(monkeypatch: pytest.MonkeyPatch, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "sample"
    path.write_bytes(content)
    monkeypatch.setattr(lock, "hashes", lambda *_: frozenset({wheels.digest(path)}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "wheels"
    path.mkdir()
    return path


def test_where_the_index_answers_nothing_is_fetched(
    monkeypatch: pytest.MonkeyPatch, pip: list[list[str]], folder: Path
):
    monkeypatch.setattr(wheels, "reachable", lambda _: True)
    wheels.provide(CPU, folder)
    assert pip == []


@pytest.mark.usefixtures("unreachable")
def test_else_this_machines_pip_is_asked_for_the_processor_build(
    monkeypatch: pytest.MonkeyPatch, pip: list[list[str]], folder: Path, tmp_path: Path
):
    admit(monkeypatch, b"torc", tmp_path)
    wheels.provide(CPU, folder)
    assert [argv[-1] for argv in pip] == ["torch==2.13.0+cpu"]
    wheels.provide(CPU, folder)
    assert len(pip) == 1, "a wheel that is there is not fetched again"


@pytest.mark.usefixtures("unreachable", "pip")
def test_a_wheel_that_the_lock_does_not_name_is_refused_and_removed(folder: Path):
    with pytest.raises(WheelRefused, match=r"is not the torch that images/locks/cpu\.txt names"):
        wheels.provide(CPU, folder)
    assert list(folder.iterdir()) == []


def test_a_wheel_that_someone_put_there_is_refused_and_kept(folder: Path):
    (folder / NAME).write_bytes(b"mine")
    with pytest.raises(WheelRefused, match="delete"):
        wheels.provide(CPU, folder)
    assert (folder / NAME).exists()


@pytest.mark.usefixtures("unreachable")
def test_where_pip_knows_none_either_the_build_is_left_to_say_so(
    monkeypatch: pytest.MonkeyPatch, folder: Path
):
    def slow(argv: list[str], timeout: float, **_: object) -> None:
        raise subprocess.TimeoutExpired(argv, timeout)

    monkeypatch.setattr(subprocess, "run", slow)
    wheels.provide(CPU, folder)
    assert list(folder.iterdir()) == []


def test_an_address_that_does_not_resolve_is_not_reachable():
    assert not wheels.reachable("http://index.invalid/")
