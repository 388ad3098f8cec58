"""Facts of machines as a probe would give them, and calls to judge on them."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any, Final

import pytest

from polyattn import capabilities, preferences
from polyattn.call import AttentionCall, Grid, Site
from polyattn.capabilities import Implementation
from polyattn.facts import DeviceFacts, PackageFacts, PlatformFacts, TorchFacts
from polyattn.vocabulary import PackageState, PlatformName, ProbeLevel, Role

GIB: Final = 2**30

# Everything that rows need, so that only architecture, dtype and the like decide.
ALL_PACKAGES: Final = (
    "torch",
    "flash-attn-4",
    "sglang-kernel",
    "flash-attn",
    "sageattention",
    "sageattn3",
    "amd-aiter",
)


def machine(
    platform: PlatformName, *architectures: str, packages: tuple[str, ...] = ALL_PACKAGES
) -> PlatformFacts:
    """A machine with these devices, all of the packages installed and importing."""
    apple = platform is PlatformName.MPS
    return PlatformFacts(
        platform=platform,
        system="Darwin" if apple else "Linux",
        machine="arm64" if apple else "x86_64",
        python="3.12.7",
        level=ProbeLevel.IMPORT,
        torch=TorchFacts(
            "2.14.1",
            cuda="13.0" if platform is PlatformName.CUDA else None,
            hip="7.2" if platform is PlatformName.ROCM else None,
        ),
        devices=tuple(
            DeviceFacts(index, f"device {architecture}", architecture, 80 * GIB)
            for index, architecture in enumerate(architectures)
        ),
        packages=tuple(PackageFacts(name, PackageState.IMPORTS, "1.0") for name in packages),
    )


H100: Final = machine(PlatformName.CUDA, "sm_90")
A100: Final = machine(PlatformName.CUDA, "sm_80")
B200: Final = machine(PlatformName.CUDA, "sm_100")
T4: Final = machine(PlatformName.CUDA, "sm_75")
RTX_4090: Final = machine(PlatformName.CUDA, "sm_89")
RTX_5090: Final = machine(PlatformName.CUDA, "sm_120")
MI300X: Final = machine(PlatformName.ROCM, "gfx942")
MI210: Final = machine(PlatformName.ROCM, "gfx90a")
M2: Final = machine(PlatformName.MPS, "apple_m2")
CPU: Final = machine(PlatformName.CPU, "x86_64")

MACHINES: Final = {
    "H100": H100,
    "A100": A100,
    "B200": B200,
    "T4": T4,
    "RTX 4090": RTX_4090,
    "RTX 5090": RTX_5090,
    "MI300X": MI300X,
    "MI210": MI210,
    "Apple M2": M2,
    "CPU": CPU,
}

SELF: Final = Site("transformer", "blocks.0.attn1", 0, Role.SELF)
CROSS: Final = Site("transformer", "blocks.0.attn2", 1, Role.CROSS)
JOINT: Final = Site("transformer", "transformer_blocks.0.attn", 0, Role.JOINT)
ENCODER: Final = Site("text_encoder", "encoder.block.0", 0, Role.SELF)
VAE: Final = Site("vae", "decoder.mid_block.attentions.0", 0, Role.SELF)

# Wan-like: 4 x 16 x 16 tokens, 12 heads of 128, half precision, no mask.
CALL: Final = AttentionCall(
    batch=1,
    query_len=1024,
    kv_len=1024,
    heads=12,
    kv_heads=12,
    head_dim=128,
    dtype="bfloat16",
    site=SELF,
    grid=Grid(4, 16, 16),
)


def call(**changes: Any) -> AttentionCall:
    """CALL with some of it changed."""
    return dataclasses.replace(CALL, **changes)


def without(facts: PlatformFacts, *packages: str) -> PlatformFacts:
    """The same machine without some packages."""
    return dataclasses.replace(
        facts, packages=tuple(p for p in facts.packages if p.name not in packages)
    )


def with_package(facts: PlatformFacts, package: PackageFacts) -> PlatformFacts:
    """The same machine with another state of one package."""
    others = tuple(p for p in facts.packages if p.name != package.name)
    return dataclasses.replace(facts, packages=(*others, package))


def give_every_row_an_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge the rules as if each kernel could be called: rows without an adapter get a name."""
    replace_rows(
        monkeypatch,
        tuple(
            dataclasses.replace(row, adapter="no.such.module:attend")
            if without_adapter(row) == row
            else row
            for row in capabilities.BUILTIN
        ),
    )


def without_adapter(row: Implementation) -> Implementation:
    """The row in a version that cannot call its kernel."""
    ways = [field.name for field in dataclasses.fields(row) if field.name in ("adapter", "bind")]
    return dataclasses.replace(row, **dict.fromkeys(ways))


def replace_rows(monkeypatch: pytest.MonkeyPatch, rows: tuple[Implementation, ...]) -> None:
    """Put other rows in the place of ours, until the test ends."""
    monkeypatch.setattr(capabilities, "BUILTIN", rows)
    # The real `rows` is cached; a fresh one is set, so that the cache comes back afterwards.
    monkeypatch.setattr(capabilities, "rows", cache(capabilities.rows.__wrapped__))
    monkeypatch.setattr(preferences, "rows", capabilities.rows)
