from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from images.platforms import ROOT, load
from images.stages import facts, install, licences, strip, trim

LOCK = (
    "# head\nnumpy==2 \\\n    --hash=sha256:a\ntorch==2.13.0+cpu \\\n    --hash=sha256:b\nzipp==4\n"
)


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    for name in ("torch/test/data.bin", "torch/lib/libtorch.so", "numpy/tests/tests/test_a.py"):
        path = site / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"12345")
    return tmp_path


def test_torch_is_split_from_the_rest_with_its_hashes():
    lock = install.split(LOCK)
    assert lock.torch == "torch==2.13.0+cpu \\\n    --hash=sha256:b\n"
    assert lock.rest == "numpy==2 \\\n    --hash=sha256:a\nzipp==4\n"
    assert lock.torch_requirement == "torch==2.13.0+cpu"


@pytest.mark.parametrize("path", sorted((ROOT / "images/locks").glob("*.txt")), ids=str)
def test_no_line_of_a_real_lock_is_lost(path: Path):
    text = path.read_text(encoding="utf-8")
    lock = install.split(text)
    assert sorted((lock.torch + lock.rest).splitlines()) == sorted(text.splitlines()[1:])


def test_secrets_reach_pip_and_empty_ones_do_not(tmp_path: Path):
    (tmp_path / "ca").write_text("certificates")
    (tmp_path / "pip").write_text("")
    found = install.pip_environment(tmp_path)
    assert found["PIP_CERT"] == str(tmp_path / "ca")
    assert found.get("PIP_CONFIG_FILE") != str(tmp_path / "pip")


@pytest.mark.parametrize(
    ("local", "source"), [(True, "images/wheels/ holds another torch"), (False, "asked https://i")]
)
def test_a_torch_that_cannot_be_had_names_both_ways(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    local: bool,
    source: str,
):
    asked: list[list[str]] = []

    def run(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(argv)
        return subprocess.CompletedProcess(argv, 1)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(install, "WHEELS", tmp_path)
    if local:
        (tmp_path / "torch-2.13.0+cpu-cp311.whl").touch()
    assert install.install_torch(Path("python"), install.split(LOCK), "https://i") == 1
    assert "--require-hashes" in asked[0]
    assert ("--no-index" in asked[0]) is local
    said = capsys.readouterr().err
    assert source in said
    assert "reach https://i" in said
    assert "images/wheels/" in said
    assert "nox -s build-cpu" in said


def test_trim_removes_what_matches(environment: Path):
    assert trim.main(environment, ["torch/test", "**/tests"]) == 0
    site = trim.site_packages(environment)
    assert sorted(path.name for path in site.rglob("*")) == ["lib", "libtorch.so", "numpy", "torch"]


def test_a_pattern_that_matches_nothing_fails_the_build(
    environment: Path, capsys: pytest.CaptureFixture[str]
):
    assert trim.main(environment, ["torch/tset"]) == 1
    assert "'torch/tset'" in capsys.readouterr().err


def test_a_file_inside_a_removed_folder_is_counted_once(environment: Path):
    site = trim.site_packages(environment)
    assert trim.matches(site, "**/tests") == [site / "numpy" / "tests"]
    assert trim.size(site / "numpy" / "tests") == 5


def test_a_library_that_no_longer_loads_fails_the_build(
    environment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def run(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(argv, 0 if argv[0] == "strip" else 1)

    monkeypatch.setattr(subprocess, "run", run)
    assert strip.main(environment, ["torch/lib/*.so"]) == 1
    assert "does not load any more" in capsys.readouterr().err


def test_a_strip_pattern_that_matches_nothing_fails_the_build(
    environment: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(subprocess, "run", lambda argv, **_: subprocess.CompletedProcess(argv, 0))
    assert strip.main(environment, ["torch/lib/*.dll"]) == 1


@pytest.mark.parametrize(
    ("file", "licence"),
    [
        ("libx264-d6533a8d.so.165", "GPL-2.0-or-later"),
        ("libavcodec-5e6b81c2.so.62", "GPL-3.0-or-later"),
        ("libzstd-1.so", "BSD-3-Clause"),
        ("libz-1.so", "Zlib"),
        ("libnew-1.so", "unknown"),
    ],
)
def test_a_bundled_library_has_the_licence_of_its_longest_name(file: str, licence: str):
    assert licences.bundled_licence(file) == licence


def test_licences_of_distributions_come_from_their_metadata(environment: Path):
    site = trim.site_packages(environment)
    for name, lines in {
        "a": "License-Expression: MIT",
        "b": "Classifier: License :: OSI Approved :: Apache Software License",
        "c": "License: BSD\n        and more",
        "d": "",
    }.items():
        folder = site / f"{name}-1.dist-info"
        folder.mkdir()
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
        (folder / "METADATA").write_text(f"{head}{lines}\n".rstrip() + "\n")
    found = {part.name: part.licence for part in licences.python_parts(site)}
    assert found == {
        "a": "MIT",
        "b": "Apache Software License",
        "c": "BSD",
        "d": "see its texts",
    }


def test_the_facts_file_names_the_lock_by_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lock, file = tmp_path / "lock.txt", tmp_path / "opt" / "image.json"
    lock.write_text("torch==2\n")
    options = ["--variant", "cpu", "--version", "1", "--revision", "abc", "--torch", "2"]
    monkeypatch.setattr("sys.argv", ["facts.py", str(file), *options, "--lock", str(lock)])
    facts.main()
    found = json.loads(file.read_text())
    assert found["variant"] == "cpu"
    assert found["lock"] == facts.digest(lock)
    assert {"version", "revision", "torch", "python", "machine"} <= set(found)


def test_stages_import_nothing_but_the_standard_library():
    """They run by the base's own Python, before anything is installed."""
    for path in (ROOT / "images" / "stages").glob("*.py"):
        command = [sys.executable, "-I", "-S", "-c", f"import runpy; runpy.run_path({str(path)!r})"]
        assert subprocess.run(command, check=False).returncode == 0, path


def test_every_stage_that_the_dockerfile_runs_exists():
    text = (ROOT / "images" / "Dockerfile").read_text(encoding="utf-8")
    names = {word.rpartition("/")[2] for word in text.split() if "/stages/" in word}
    named = {name for name in names if name.endswith((".py", ".sh"))}
    assert named <= {path.name for path in (ROOT / "images" / "stages").iterdir()}
    assert load().variant("cpu").trim.patterns
