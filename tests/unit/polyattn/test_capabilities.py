"""The rows: well-formed, sourced, extensible, and refusing in sentences."""

from __future__ import annotations

import dataclasses
import logging
from importlib.metadata import EntryPoint

import pytest

from polyattn import capabilities
from polyattn.call import AttentionCall, Grid
from polyattn.capabilities import BUILTIN, Implementation, Needs
from polyattn.errors import UnknownName
from polyattn.facts import PackageFacts, PlatformFacts
from polyattn.probe.imports import MODULES
from polyattn.vocabulary import (
    ENTRY_POINT_GROUP,
    Fidelity,
    MaskKind,
    PackageState,
    PlatformName,
    Role,
)
from tests.unit.polyattn.machines import (
    CPU,
    CROSS,
    H100,
    MI300X,
    RTX_5090,
    call,
    machine,
    replace_rows,
    with_package,
)


@pytest.mark.parametrize("row", BUILTIN, ids=lambda row: row.name)
def test_rows_are_well_formed(row: Implementation) -> None:
    assert row.title
    assert row.evidence
    # An adapter is "module:function", in a module of our own.
    assert row.adapter is None or row.adapter.partition(":")[0].startswith("polyattn.backends.")
    # A row that names architectures names some for each of its platforms, and for no other.
    prefixes = {PlatformName.CUDA: "sm_", PlatformName.ROCM: "gfx"}
    if row.needs.architectures:
        for platform in row.needs.platforms:
            assert any(a.startswith(prefixes[platform]) for a in row.needs.architectures)
        allowed = tuple(prefixes[platform] for platform in row.needs.platforms)
        assert all(a.startswith(allowed) for a in row.needs.architectures)
    # The import probe knows which module proves the package.
    assert row.needs.package is None or row.needs.package in MODULES


def test_exactly_the_documented_kernels_are_not_exact() -> None:
    # facts/sglang-diffusion.md 1.6: SageAttention quantises, the three of video are sparse.
    kinds = {row.name: row.fidelity for row in BUILTIN if row.fidelity is not Fidelity.EXACT}
    assert kinds == {
        "sage1": Fidelity.LOSSY,
        "sage2": Fidelity.LOSSY,
        "sage3": Fidelity.LOSSY,
        "sta": Fidelity.SPARSE,
        "sta_triton": Fidelity.SPARSE,
        "vsa": Fidelity.SPARSE,
        "vsa_triton": Fidelity.SPARSE,
        "vmoba": Fidelity.SPARSE,
        "vmoba_triton": Fidelity.SPARSE,
    }


def needs(**changes: object) -> Needs:
    return Needs(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("needed", "asked", "reason"),
    [
        (needs(dtypes=("float16",)), call(), "takes float16, not bfloat16"),
        (needs(head_dims=(64, 96)), call(), "takes head_dim 64, 96, not 128"),
        (needs(max_head_dim=64), call(), "takes head_dim up to 64, not 128"),
        (needs(max_head_dim=128), call(value_head_dim=256), "takes head_dim up to 128, not 256"),
        (
            needs(head_dim_multiple=16),
            call(head_dim=40),
            "takes multiples of 16 as head_dim, not 40",
        ),
        (needs(masks=(MaskKind.NONE,)), call(mask=MaskKind.BOOL), "takes no bool mask"),
        (needs(roles=(Role.SELF,)), call(site=CROSS), "does not serve cross attention"),
        (needs(causal=False), call(causal=True), "has no causal form"),
        (
            needs(grouped_heads=False),
            call(kv_heads=4),
            "needs as many key heads as query heads, not 4 for 12",
        ),
        (
            needs(custom_scale=False),
            call(softmax_scale=0.1),
            "takes no softmax_scale of the caller's",
        ),
        (needs(lse=False), call(lse=True), "returns no log-sum-exp"),
        (
            needs(grid=True),
            call(grid=None),
            "needs the token grid, which is not known at this site",
        ),
        (
            needs(grid=True),
            call(grid=Grid(4, 16, 15)),
            "needs a token grid that fits: 4x16x15 is not 1024 tokens",
        ),
    ],
)
def test_each_need_has_its_reason(needed: Needs, asked: AttentionCall, reason: str) -> None:
    assert needed.unmet(asked, H100) == reason
    # The same call is served where only that need is lifted.
    assert needs().unmet(asked, H100) is None


@pytest.mark.parametrize(
    ("needed", "facts", "reason"),
    [
        (
            needs(platforms=(PlatformName.CUDA, PlatformName.ROCM)),
            CPU,
            "needs the platform cuda or rocm; this machine is cpu",
        ),
        (needs(package="x"), CPU, "needs the package x, which is not installed"),
        (needs(architectures=("sm_90",)), RTX_5090, "has kernels for sm_90; found sm_120"),
        (
            needs(architectures=("sm_90",)),
            machine(PlatformName.CUDA),
            "has kernels for sm_90; found no device",
        ),
        (
            needs(architectures=("gfx942",)),
            machine(PlatformName.ROCM, "gfx942", "gfx1100"),
            "has kernels for gfx942; found gfx1100",
        ),
        (
            needs(package="amd-aiter"),
            with_package(MI300X, PackageFacts("amd-aiter", PackageState.BROKEN, "1", "OSError")),
            "needs the package amd-aiter, which is installed but broken: OSError",
        ),
    ],
)
def test_each_need_of_the_machine_has_its_reason(
    needed: Needs, facts: PlatformFacts, reason: str
) -> None:
    assert needed.unmet_by_machine(facts) == reason
    assert needed.unmet(call(), facts) == reason
    assert needed.unmet(None, facts) == reason


def test_newer_devices_are_not_assumed_to_work() -> None:
    # facts/reports.md 10: ">= 8.0" let SM 12.0 through. An allow-list does not.
    needed = needs(architectures=("sm_80", "sm_90"))
    assert needed.unmet_by_machine(RTX_5090) is not None


def test_a_rule_judges_machine_and_call() -> None:
    def whole_tiles(asked: AttentionCall | None, facts: PlatformFacts) -> str | None:
        """kv_len is a multiple of 64 on CUDA."""
        if facts.platform is not PlatformName.CUDA:
            return "has tiles on CUDA only"
        if asked is not None and asked.kv_len % 64:
            return f"takes multiples of 64 keys, not {asked.kv_len}"
        return None

    needed = needs(rules=(whole_tiles,))
    assert needed.unmet(None, CPU) == "has tiles on CUDA only"
    assert needed.unmet(None, H100) is None
    assert needed.unmet(call(kv_len=77), H100) == "takes multiples of 64 keys, not 77"
    assert needed.unmet(call(kv_len=128), H100) is None


def test_no_adapter_is_a_reason_like_any_other() -> None:
    row = Implementation("x", "x", "X", Needs())
    assert row.unmet(call(), CPU) == "has no adapter in this version of polyattn"
    assert row.unmet(None, CPU) == "has no adapter in this version of polyattn"


def test_rows_are_found_by_backend_and_by_name() -> None:
    found = [row.name for row in capabilities.rows_of("fa")]
    assert found == ["fa4", "fa3", "fa3_hopper", "fa2"]
    assert capabilities.row("sdpa").backend == "torch_sdpa"
    with pytest.raises(UnknownName, match=r"Did you mean 'sage_attn'\?"):
        capabilities.rows_of("sage_atn")
    with pytest.raises(UnknownName, match=r"Did you mean 'sdpa'\?"):
        capabilities.row("spda")


# What other distributions register. The entry points are real ones, over this module.

REGISTERED = Implementation("mine", "my_backend", "Mine", Needs(), adapter="mine:attend")
TWO = (
    dataclasses.replace(REGISTERED, name="one"),
    dataclasses.replace(REGISTERED, name="two"),
)
CLASHING = dataclasses.replace(REGISTERED, name="fa3")


def register(monkeypatch: pytest.MonkeyPatch, *references: str) -> None:
    entries = [
        EntryPoint(f"entry{number}", f"{__name__}:{reference}", ENTRY_POINT_GROUP)
        for number, reference in enumerate(references)
    ]
    replace_rows(monkeypatch, BUILTIN)
    monkeypatch.setattr(capabilities, "entry_points", lambda group: entries)
    monkeypatch.setattr(EntryPoint, "load", lambda self: globals()[self.attr])


def test_others_register_rows_and_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    from polyattn.preferences import Request, parse_backend

    register(monkeypatch, "REGISTERED", "TWO")
    assert [row.name for row in capabilities.rows()[len(BUILTIN) :]] == ["mine", "one", "two"]
    assert "my_backend" in capabilities.backend_names()
    assert parse_backend("my_backend") == Request("my_backend")
    assert parse_backend("two") == Request("my_backend", "two")


def test_a_name_that_is_taken_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "CLASHING")
    with pytest.raises(ValueError, match="fa3"):
        capabilities.rows()


def test_a_broken_registration_stops_nobody_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    register(monkeypatch, "not_there", "REGISTERED")
    with caplog.at_level(logging.WARNING, logger="polyattn"):
        assert capabilities.rows()[-1] is REGISTERED
    assert "do not load: KeyError: 'not_there'" in caplog.text
