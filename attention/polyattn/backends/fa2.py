"""fa by FlashAttention 2 (package flash-attn), on CUDA and on ROCm.

https://github.com/Dao-AILab/flash-attention
"""

from __future__ import annotations

from flash_attn import flash_attn_func, flash_attn_varlen_func
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
    out: Tensor = flash_attn_func(query, key, value, softmax_scale=softmax_scale, causal=causal)
    return out


def _variable(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Lengths,
    causal: bool,
    softmax_scale: float | None,
) -> Tensor:
    out: Tensor = flash_attn_varlen_func(
        query,
        key,
        value,
        **lengths.keywords,
        softmax_scale=softmax_scale,
        causal=causal,
    )
    return out
