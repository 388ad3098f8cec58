"""aiter by AMD's AITER (package amd-aiter; PyPI's `aiter` is another project).

https://github.com/ROCm/aiter/blob/main/aiter/ops/mha.py
"""

from __future__ import annotations

from typing import Any

from aiter.ops.mha import flash_attn_func
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
    result: Any = flash_attn_func(
        rows(query), rows(key), rows(value), softmax_scale=softmax_scale, causal=causal
    )
    out: Tensor = result[0] if isinstance(result, (tuple, list)) else result
    return out
