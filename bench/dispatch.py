"""What counting and selecting cost per attention call, and on a whole model.

    python -m bench.dispatch [--json FILE] [--repeats N]

Per call: microseconds over raw SDPA with its four transposes, beside diffusers' own dispatcher,
tensors [1, 16, 2, 16], one thread, minimum over interleaved repeats. Whole model: a forward of a
12-block Wan transformer of the width of Wan2.1-T2V-1.3B (12 heads of 128), attached over
unattached. Device synchronisations: none can happen on a CPU; that a mask is read once per tensor
is a test (tests/unit/polyattn/test_layers.py).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from diffusers import WanTransformer3DModel
from diffusers.models.attention_dispatch import dispatch_attention_fn
from torch.nn.functional import scaled_dot_product_attention

from polyattn.integrations import standins
from polyattn.integrations.diffusers import attach
from polyattn.integrations.identity import CURRENT
from polyattn.layers import Context, LocalAttention
from polyattn.probe import static_facts

CALLS = 2000


def raw(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """SDPA as a model in [batch, sequence, heads, head_dim] must call it."""
    return scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    ).transpose(1, 2)


def microseconds(
    functions: dict[str, Callable[..., torch.Tensor]], repeats: int
) -> dict[str, float]:
    """Each function's least time per call, interleaved."""
    query, key, value = torch.randn(3, 1, 16, 2, 16).unbind(0)
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                function(query, key, value)
            best[name] = min(best[name], (time.perf_counter() - start) / CALLS * 1e6)
    return best


def per_call(repeats: int) -> dict[str, float]:
    """Microseconds over raw SDPA."""
    layer = LocalAttention(Context(static_facts()))
    standin = standins._dispatch_standin(dispatch_attention_fn)

    def through_standin(*tensors: torch.Tensor) -> torch.Tensor:
        CURRENT.layer = layer
        return standin(*tensors)

    with torch.no_grad():
        times = microseconds(
            {
                "raw": raw,
                "LocalAttention": layer,
                "diffusers stand-in to LocalAttention": through_standin,
                "diffusers' dispatcher": dispatch_attention_fn,
            },
            repeats,
        )
    CURRENT.layer = None
    base = times.pop("raw")
    return {"raw SDPA": base, **{name: time - base for name, time in times.items()}}


class _Pipeline:
    """The part of a pipeline that attach() reads."""

    def __init__(self, transformer: Any) -> None:
        self.components = {"transformer": transformer}


def whole_model(repeats: int) -> dict[str, float]:
    """Seconds of a forward pass, unattached and attached, and their ratio."""
    torch.manual_seed(0)
    transformer = WanTransformer3DModel(
        num_attention_heads=12, attention_head_dim=128, ffn_dim=8960, num_layers=12
    ).eval()
    inputs = {
        "hidden_states": torch.randn(1, 16, 2, 16, 16),
        "timestep": torch.tensor([500]),
        "encoder_hidden_states": torch.randn(1, 32, 4096),
    }
    pipeline = _Pipeline(transformer)
    times: dict[str, list[float]] = {"unattached": [], "attached": []}

    def forward() -> float:
        start = time.perf_counter()
        transformer(**inputs, return_dict=False)
        return time.perf_counter() - start

    with torch.no_grad():
        forward()
        for _ in range(repeats):
            times["unattached"].append(forward())
            attachment = attach(pipeline)
            forward()  # the traced first pass
            times["attached"].append(forward())
            attachment.detach()
    pairs = zip(times["attached"], times["unattached"], strict=True)
    return {
        "unattached_s": min(times["unattached"]),
        "attached_s": min(times["attached"]),
        "ratio_of_minima": min(times["attached"]) / min(times["unattached"]),
        "median_of_paired_ratios": statistics.median(a / b for a, b in pairs),
    }


def main() -> None:
    """Run both and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--repeats", type=int, default=25)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result = {
        "microseconds_over_raw": per_call(arguments.repeats),
        "wan_12_blocks": whole_model(max(3, arguments.repeats // 3)),
        "torch": torch.__version__,
    }
    for title, figures in result.items():
        if isinstance(figures, dict):
            print(title)
            for name, value in figures.items():
                print(f"  {name:40} {value:8.3f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
