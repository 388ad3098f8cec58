"""`ditport backends`: every row, usable or why not, for this machine, another one, or the docs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from ditport.cli import main
from polyattn import capabilities
from polyattn.call import AttentionCall
from polyattn.capabilities import Implementation, Needs
from polyattn.facts import LiveResult, PlatformFacts
from polyattn.probe import static_facts
from polyattn.probe.support import HEAD, as_data, automatic, listing, markdown, support
from polyattn.vocabulary import Fidelity, MaskKind, PlatformName, Role
from tests.unit.polyattn.machines import (
    H100,
    MACHINES,
    RTX_5090,
    give_every_row_an_adapter,
    machine,
    replace_rows,
    without,
)


@pytest.fixture
def _adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    give_every_row_an_adapter(monkeypatch)


def facts_file(folder: Path, facts: PlatformFacts) -> str:
    (folder / "facts.json").write_text(facts.to_json())
    return str(folder / "facts.json")


def test_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backends"]) == 0
    assert capsys.readouterr().out == listing(static_facts()) + "\n"


@pytest.mark.parametrize("name", MACHINES)
def test_every_row_is_listed_once_with_a_verdict(name: str) -> None:
    lines = listing(MACHINES[name]).splitlines()
    listed = [line.split()[:2] for line in lines[2 : lines.index("automatic choice") - 1]]
    assert listed == [[str(row.backend), row.name] for row in capabilities.rows()]
    assert all(one.words for one in support(MACHINES[name]))


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.usefixtures("_adapters")
def test_another_machine_is_judged_by_its_facts(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # From the rules (see test_selector.AUTO), for a call that FlashAttention serves.
    first = {
        "H100": "fa3, else fa4, else fa2, else sdpa",
        "A100": "fa3, else fa2, else fa4, else sdpa",
        "RTX 4090": "fa2, else fa4, else sdpa",
        "B200": "sdpa, else fa4, else fa2",
        "RTX 5090": "sdpa, else fa4, else fa2",
        "T4": "sdpa",
        "MI300X": "fa2, else sdpa",
        "MI210": "fa2, else sdpa",
        "Apple M2": "sdpa, else sdpa_chunked",
        "CPU": "sdpa",
    }[name]
    assert main(["backends", "--facts", facts_file(tmp_path, MACHINES[name])]) == 0
    device = capsys.readouterr().out.splitlines()[-1]
    architecture = MACHINES[name].devices[0].architecture
    assert device.startswith(f"device 0 ({architecture})  {first}  ")


@pytest.mark.usefixtures("_adapters")
def test_verdicts() -> None:
    verdicts = {one.row.name: one.words for one in support(RTX_5090)}
    assert verdicts["sdpa"] == "usable"
    assert verdicts["fa4"] == "usable"
    assert verdicts["sage1"] == "usable on request (lossy)"
    assert verdicts["sta"] == "usable on request (sparse)"
    assert verdicts["fa3"].startswith("no: has kernels for sm_80, ")
    assert verdicts["fa3"].endswith("found sm_120")
    assert verdicts["aiter"] == "no: needs the platform rocm; this machine is cuda"


@pytest.mark.usefixtures("_adapters")
def test_devices_that_differ_are_judged_apart() -> None:
    mixed = machine(PlatformName.CUDA, "sm_90", "sm_120")
    verdicts = {one.row.name: one.words for one in support(mixed)}
    assert verdicts["fa3"].startswith("device 0: usable; device 1: no: has kernels for")
    assert verdicts["fa4"] == "usable"
    assert [order.implementations[0] for order in automatic(mixed)] == ["fa3", "sdpa"]
    data = as_data(mixed)
    fa3 = next(row for row in data["implementations"] if row["name"] == "fa3")
    assert fa3["usable"] is True
    assert [device["reason"] is None for device in fa3["devices"]] == [True, False]


def test_a_machine_without_devices_is_judged_as_such() -> None:
    bare = dataclasses.replace(H100, devices=())
    verdicts = {one.row.name: one.words for one in support(bare)}
    assert verdicts["fa3"].endswith("found no device")
    assert automatic(bare) == ()


def test_nothing_can_run_without_torch() -> None:
    assert "nothing can run" not in listing(H100)
    gone = tuple(
        dataclasses.replace(p, state="absent") if p.name == "torch" else p for p in H100.packages
    )
    facts = PlatformFacts.from_json(dataclasses.replace(H100, packages=gone).to_json())
    assert "nothing can run" in listing(facts)


def test_a_failed_live_probe_shows() -> None:
    facts = dataclasses.replace(H100, live=(LiveResult("sdpa", 0, None, "killed by SIGSEGV"),))
    verdicts = {one.row.name: one.words for one in support(facts)}
    assert verdicts["sdpa"] == "no: failed when it was tried on device 0: killed by SIGSEGV"


@pytest.mark.usefixtures("_adapters")
def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = without(H100, "flash-attn")
    assert main(["backends", "--json", "--facts", facts_file(tmp_path, facts)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data == as_data(facts)
    assert (data["platform"], data["fingerprint"]) == ("cuda", facts.fingerprint)
    rows = {row["name"]: row for row in data["implementations"]}
    assert list(rows) == [row.name for row in capabilities.rows()]
    assert rows["fa3"]["usable"] is True
    assert rows["fa3"]["devices"] == [{"index": 0, "reason": None}]
    assert rows["fa2"]["usable"] is False
    assert rows["fa2"]["devices"][0]["reason"] == (
        "needs the package flash-attn, which is not installed"
    )
    assert rows["sage1"]["fidelity"] == "lossy"
    assert data["automatic"][0]["implementations"] == ["fa3", "fa4", "sdpa"]
    assert data["automatic"][0]["device"]["architecture"] == "sm_90"


# The documentation's matrix


def tile_rule(call: AttentionCall | None, facts: PlatformFacts) -> str | None:
    """kv_len a multiple of 64.

    More of it is not for a table.
    """
    return None


ROWS = (
    Implementation(
        "one",
        "first",
        "Kernel | one",
        Needs(
            platforms=(PlatformName.CUDA, PlatformName.ROCM),
            package="one-kernels",
            architectures=("sm_90", "gfx942"),
            dtypes=("float16",),
            max_head_dim=128,
            head_dim_multiple=8,
            masks=(MaskKind.NONE, MaskKind.BOOL),
            roles=(Role.SELF,),
            causal=False,
            grouped_heads=False,
            custom_scale=False,
            lse=False,
            grid=True,
            rules=(tile_rule,),
        ),
        adapter="one:attend",
        fidelity=Fidelity.SPARSE,
        evidence="run on H100",
    ),
    Implementation(
        "two", "second", "Kernel two", Needs(platforms=(PlatformName.CPU,), head_dims=(64, 96))
    ),
    Implementation("three", "second", "Kernel three", Needs(), adapter="three:attend"),
)

MATRIX = """\
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| `first` | `one`: Kernel / one | sparse | sm_90 | gfx942 | no | no | `one-kernels` | float16 \
| up to 128, multiples of 8 | bool | not causal; as many key heads as query heads; default softmax \
scale; no log-sum-exp; the token grid; self attention; kv_len a multiple of 64 | run on H100 |
| `second` | `two`: Kernel two | exact | no | no | no | (any) | torch | any | 64, 96 \
| key_padding, bool, additive | none | not run on hardware |
| `second` | `three`: Kernel three | exact | any | any | any | any | torch | any | any \
| key_padding, bool, additive | none | not run on hardware |"""


def test_the_matrix_shows_every_need(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_rows(monkeypatch, ROWS)
    lines = markdown().splitlines()
    assert lines[0] == f"| {' | '.join(HEAD)} |"
    assert "\n".join(lines[1:5]) == MATRIX
    assert "without an adapter" in lines[-1]


def test_the_matrix_lists_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backends", "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + len(capabilities.rows())
    assert {line.count(" | ") for line in table} == {len(HEAD) - 1}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--markdown", "--facts", "x"], "--markdown lists every machine"),
        (["--markdown", "--json"], "not allowed with argument"),
        (["--jsn"], "Did you mean --json?"),
    ],
)
def test_wrong_words_are_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backends", *words]) == 2
    assert said in capsys.readouterr().err
