"""`ditport probe`: every fact, for people and as JSON, of this machine and of others."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest

from ditport.cli import main
from polyattn.facts import LiveResult, PackageFacts, PlatformFacts, TorchFacts
from polyattn.probe import static_facts
from polyattn.probe.describe import aligned, description, gibibytes, machine
from polyattn.vocabulary import PackageState, ProbeLevel
from tests.unit.polyattn.machines import H100, M2, MI300X, with_package

FULL = dataclasses.replace(
    with_package(
        H100, PackageFacts("flash-attn", PackageState.BROKEN, "2.8.3", "import flash_attn: OSError")
    ),
    level=ProbeLevel.LIVE,
    torch=TorchFacts("2.14.1+cu130", "13.0", None, ("sm_80", "sm_90")),
    driver="580.95.05",
    image="cuda",
    live=(LiveResult("sdpa", 0, 0.0021), LiveResult("fa3", 0, None, "killed by SIGSEGV")),
    notes=("one thing", "and another"),
)

DESCRIBED = """\
platform  cuda (NVIDIA CUDA)
system    Linux x86_64, Python 3.12.7
torch     2.14.1+cu130, built for CUDA 13.0, kernels for sm_80 sm_90
driver    580.95.05
image     ditport:cuda
devices   0  device sm_90  sm_90  80.0 GiB
packages  torch          1.0    imports
          flash-attn-4   1.0    imports
          sglang-kernel  1.0    imports
          sageattention  1.0    imports
          sageattn3      1.0    imports
          amd-aiter      1.0    imports
          flash-attn     2.8.3  broken: import flash_attn: OSError
live      sdpa  device 0  right; largest error 0.0021
          fa3   device 0  killed by SIGSEGV
notes     one thing
          and another"""


def test_a_full_description() -> None:
    assert description(FULL) == DESCRIBED


def test_a_description_of_little() -> None:
    facts = dataclasses.replace(H100, torch=None, devices=(), packages=())
    assert description(facts).splitlines()[2:] == ["torch     not installed", "devices   none"]
    live = dataclasses.replace(facts, level=ProbeLevel.LIVE)
    assert description(live).splitlines()[-1] == "live      nothing could be run"


def test_other_builds_of_torch() -> None:
    assert "built for ROCm 7.2" in description(MI300X)
    assert "built" not in description(M2)


def test_one_line_of_a_machine() -> None:
    assert machine(H100) == "NVIDIA CUDA: device sm_90 (sm_90); torch 2.14.1"
    bare = dataclasses.replace(H100, devices=(), torch=None)
    assert machine(bare) == "NVIDIA CUDA: no device; no torch"


def test_columns_and_sizes() -> None:
    assert aligned([("a", "bb", "c"), ("aaa", "b", "")]) == ["a    bb  c", "aaa  b"]
    assert aligned([]) == []
    assert (gibibytes(None), gibibytes(3 * 2**29)) == ("", "1.5 GiB")


def test_the_static_level_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe"]) == 0
    assert capsys.readouterr().out == description(static_facts()) + "\n"
    assert main(["probe", "--json"]) == 0
    assert PlatformFacts.from_json(capsys.readouterr().out) == static_facts()


@pytest.mark.parametrize("level", list(ProbeLevel))
def test_each_level_is_gathered(
    level: ProbeLevel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[ProbeLevel] = []

    def gathered(at: ProbeLevel) -> PlatformFacts:
        asked.append(at)
        return FULL

    monkeypatch.setattr("ditport.cli.probe.gather", gathered)
    assert main(["probe", "--level", str(level)]) == 0
    assert asked == [level]
    assert capsys.readouterr().out == DESCRIBED + "\n"


def test_what_a_probe_wrote_can_be_shown_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "facts.json").write_text(FULL.to_json())
    assert main(["probe", "--facts", str(tmp_path / "facts.json")]) == 0
    assert capsys.readouterr().out == DESCRIBED + "\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(FULL.to_json()))
    assert main(["probe", "--facts", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(FULL.to_json())


@pytest.mark.parametrize("command", ["probe", "backends"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"root:x:0:0", "cannot be used. This is not a facts file"),
        (b"\xff\xfe\x00\x01", "is not text"),
        (b"{}", "not a facts file of schema 1"),
        (
            H100.to_json().replace('"sm_90"', "90").encode(),
            "DeviceFacts.architecture must be str, not 90",
        ),
    ],
    ids=["missing", "passwd", "binary", "empty", "wrong type"],
)
def test_a_bad_facts_file_is_refused(
    command: str,
    content: bytes | None,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "facts.json"
    if content is not None:
        file.write_bytes(content)
    assert main([command, "--facts", str(file)]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert said in streams.err
    assert str(file) in streams.err
    assert "Traceback" not in streams.err


def test_a_folder_is_no_facts_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--facts", str(tmp_path)]) == 2
    assert "Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--level", "deep"],
        ["--level", "live", "--facts", "x"],
        ["--levle", "static"],
        ["extra"],
    ],
)
def test_wrong_words_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", *words]) == 2
    assert "Traceback" not in capsys.readouterr().err
