"""Which of torch's own kernels computed a model's attention: asked of torch, call by call.

`torch.backends.cuda.*_sdp_enabled()` say what may be used, not what is: on some devices torch
computes by its math kernel nevertheless, which holds every score at once.
https://github.com/unslothai/unsloth/issues/8225
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any, Final

import torch
from torch import Tensor

log = logging.getLogger("polyattn")

# As torch.nn.attention.SDPBackend numbers them.
NAMES: Final = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn", 4: "another device's"}
WORTH_SAYING: Final = 2**28  # bytes of scores in one call


class TorchKernels:
    """The kernels of one forward pass, counted, and the most that the math kernel needs."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.most_bytes = 0
        self._on_gpu = False

    def note(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Count the kernel that torch takes for a call of scaled_dot_product_attention."""
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        call = {**dict(zip(names, args, strict=False)), **kwargs}
        query, key = call["query"], call["key"]
        name = kernel_of(call)
        self.counts[name] += 1
        if name == "math":
            self._on_gpu = self._on_gpu or query.device.type == "cuda"
            scores = query.numel() // query.shape[-1] * key.shape[-2]
            # The math kernel computes half precision in float32.
            self.most_bytes = max(self.most_bytes, scores * max(4, query.element_size()))

    def __str__(self) -> str:
        return ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))

    def warn(self, component: str) -> None:
        """Say so where a GPU computed large attention without a fused kernel."""
        if self._on_gpu and self.most_bytes >= WORTH_SAYING:
            log.warning(
                "%s: torch computed %d attention calls by its math kernel, no fused one fits; the "
                "largest holds %.1f GiB of scores at once",
                component,
                self.counts["math"],
                self.most_bytes / 2**30,
            )


def kernel_of(call: dict[str, Any]) -> str:
    """The kernel that torch takes for this call: flash, efficient, cudnn, math."""
    query: Tensor = call["query"]
    choice = torch._fused_sdp_choice(
        query,
        call["key"],
        call["value"],
        call.get("attn_mask"),
        call.get("dropout_p", 0.0),
        call.get("is_causal", False),
        scale=call.get("scale"),
        enable_gqa=call.get("enable_gqa", False),
    )
    return NAMES.get(choice, f"kernel {choice}")
