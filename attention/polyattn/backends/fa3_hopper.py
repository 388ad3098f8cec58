"""fa by FlashAttention 3 as its own project builds it (distribution flash-attn-3, not on PyPI).

https://github.com/Dao-AILab/flash-attention/tree/main/hopper
"""

from __future__ import annotations

from typing import Any

from flash_attn_interface import flash_attn_func, flash_attn_varlen_func
from torch import Tensor

from polyattn.backends.varlen import Lengths, attend_by


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    softmax_scale: float | None = None,
) -> Tensor:
    """See polyattn.backends for shapes. Exact; the mask is key padding."""
    return attend_by(_dense, _variable, query, key, value, mask, causal, softmax_scale)


def _dense(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, softmax_scale: float | None
) -> Tensor:
    return _output(flash_attn_func(query, key, value, softmax_scale=softmax_scale, causal=causal))


def _variable(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Lengths,
    causal: bool,
    softmax_scale: float | None,
) -> Tensor:
    return _output(
        flash_attn_varlen_func(
            query,
            key,
            value,
            **lengths.keywords,
            softmax_scale=softmax_scale,
            causal=causal,
        )
    )


def _output(result: Any) -> Tensor:
    # Until return_attn_probs came (2025-09), it returned the log-sum-exp as well.
    out: Tensor = result[0] if isinstance(result, tuple) else result
    return out
