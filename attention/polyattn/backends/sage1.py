"""sage_attn by SageAttention 1 (package sageattention from PyPI): Triton, INT8 scores.

https://github.com/thu-ml/SageAttention/tree/v1.0.6
"""

from __future__ import annotations

import torch
from sageattention import sageattn
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
    """See polyattn.backends for shapes. Lossy; no mask."""
    assert mask is None  # sageattn would swallow one by its **kwargs
    out: Tensor = sageattn(
        rows(query),
        # Its smoothing subtracts the mean from the caller's keys in place (`k -= km`, 1.0.6).
        key.clone(memory_format=torch.contiguous_format),
        rows(value),
        tensor_layout="NHD",
        is_causal=causal,
        sm_scale=softmax_scale,
    )
    return out
