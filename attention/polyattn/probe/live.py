"""The live level: every usable kernel runs on small tensors and is compared with the oracle."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from polyattn import capabilities
from polyattn.call import AttentionCall
from polyattn.capabilities import Implementation
from polyattn.facts import LiveResult, PlatformFacts
from polyattn.probe.child import run
from polyattn.probe.host import Host
from polyattn.vocabulary import DType, Fidelity, MaskKind, PlatformName, ProbeLevel

if TYPE_CHECKING:
    import torch

SECONDS: Final = 300.0  # a kernel may be compiled on first use

_MEASURE: Final = """
from polyattn.facts import PlatformFacts
from polyattn.probe.live import measure
report(value=measure(arguments[0], int(arguments[1]), PlatformFacts.from_json(arguments[2])))
"""


def with_live_results(facts: PlatformFacts, host: Host, seconds: float = SECONDS) -> PlatformFacts:
    """The facts after running every usable implementation on every device, one process each."""
    live: list[LiveResult] = []
    notes = list(facts.notes)
    for device in facts.devices:
        here = facts.for_device(device.index)
        for row in capabilities.rows():
            if row.unmet_by_machine(here) is not None:
                continue
            if row.fidelity is Fidelity.SPARSE:
                notes.append(f"{row.name} was not run: a sparse result has no dense oracle")
                continue
            words = (row.name, str(device.index), here.to_json())
            outcome = run(_MEASURE, *words, host=host, seconds=seconds)
            if outcome.failure is not None:
                live.append(LiveResult(row.name, device.index, None, outcome.failure))
            else:
                live.append(LiveResult(row.name, device.index, *outcome.value))
    return dataclasses.replace(
        facts, level=ProbeLevel.LIVE, live=tuple(live), notes=tuple(dict.fromkeys(notes))
    )


def calls(row: Implementation, facts: PlatformFacts, device: int = 0) -> tuple[AttentionCall, ...]:
    """Small calls that the row says it serves: plain, cross, causal, grouped, masked."""
    dtypes: tuple[DType, ...] = row.needs.dtypes or ("float32", "bfloat16")
    head_dim = row.needs.head_dims[0] if row.needs.head_dims else 64
    found = []
    for dtype in dtypes:
        plain = AttentionCall(2, 33, 33, 4, 4, head_dim, dtype, device=device)
        variants: tuple[dict[str, Any], ...] = (
            {},
            {"query_len": 70, "kv_len": 17},
            {"causal": True},
            {"kv_heads": 2},
            {"mask": MaskKind.KEY_PADDING},
            {"mask": MaskKind.BOOL},
            {"mask": MaskKind.ADDITIVE},
            {"softmax_scale": 0.25},
        )
        found += [dataclasses.replace(plain, **variant) for variant in variants]
    return tuple(call for call in found if row.unmet(call, facts) is None)


def measure(name: str, device: int, facts: PlatformFacts) -> tuple[float | None, str | None]:
    """Run one implementation on one device: its largest error, and what is wrong with it.

    This imports torch and the kernel: it is meant for a process of its own.
    """
    import torch

    from polyattn.layers import Context, adapter, bound
    from polyattn.oracle.tolerance import errors

    row = capabilities.row(name)
    served = calls(row, facts, device)
    if not served:
        return None, "no small call meets its needs"
    worst = 0.0
    for number, call in enumerate(served):
        generator = torch.Generator().manual_seed(number)
        query, key, value, mask = tensors(call, facts.platform, generator)
        attend = bound(name, call, Context(facts)) or adapter(name)
        output = attend(
            query,
            key,
            value,
            mask=mask,
            causal=call.causal,
            softmax_scale=call.softmax_scale,
        )
        error, excess = errors(
            output.cpu(),
            query.cpu(),
            key.cpu(),
            value.cpu(),
            mask=None if mask is None else mask.cpu(),
            causal=call.causal,
            softmax_scale=call.softmax_scale,
            fidelity=row.fidelity,
        )
        if excess > 1.0:
            return (
                error if error < float("inf") else None,
                f"wrong result: the error is {excess:.3g} times what {call.dtype} allows ({call})",
            )
        worst = max(worst, error)
    return worst, None


def tensors(
    call: AttentionCall, platform: PlatformName, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Random query, key, value and mask of a call, on its device."""
    import torch

    cpu = platform in (PlatformName.CPU, PlatformName.MPS)
    device = str(platform) if cpu else f"cuda:{call.device}"
    dtype = getattr(torch, call.dtype)

    def drawn(length: int, heads: int) -> torch.Tensor:
        shape = (call.batch, length, heads, call.head_dim)
        return torch.randn(shape, generator=generator).to(device, dtype)

    query = drawn(call.query_len, call.heads)
    key, value = drawn(call.kv_len, call.kv_heads), drawn(call.kv_len, call.kv_heads)
    if call.mask is MaskKind.NONE:
        return query, key, value, None
    per_query = 1 if call.mask is MaskKind.KEY_PADDING else call.query_len
    drawn_mask = torch.rand((call.batch, 1, per_query, call.kv_len), generator=generator)
    mask = drawn_mask > 0.3
    mask[..., 0] = True  # every row sees a key
    if call.mask is MaskKind.ADDITIVE:
        mask = torch.where(mask, drawn_mask, -torch.inf).to(dtype)
    return query, key, value, mask.to(device)
