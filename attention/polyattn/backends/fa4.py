"""fa by FlashAttention 4 (package flash-attn-4): CuTe DSL kernels, compiled on first use.

https://github.com/Dao-AILab/flash-attention/tree/main/flash_attn/cute
"""

from __future__ import annotations

from flash_attn.cute import flash_attn_func
from torch import Tensor

from polyattn.backends.varlen import rows


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    softmax_scale: float | None = None,
) -> Tensor:
    """See polyattn.backends for shapes. Exact; no mask."""
    assert mask is None
    # It returns the log-sum-exp (None where it was not asked for) as well.
    out, _ = flash_attn_func(
        rows(query), rows(key), rows(value), softmax_scale=softmax_scale, causal=causal
    )
    result: Tensor = out
    return result
