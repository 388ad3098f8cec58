"""fa by FlashAttention 3 as sglang-kernel ships it. It has the variable-length form only.

https://github.com/sgl-project/sglang/blob/main/sgl-kernel/python/sgl_kernel/flash_attn.py
"""

from __future__ import annotations

from functools import partial

from sgl_kernel.flash_attn import flash_attn_varlen_func
from torch import Tensor

from polyattn.backends.varlen import Lengths, attend_by, equal_lengths


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


_dense = partial(equal_lengths, _variable)
