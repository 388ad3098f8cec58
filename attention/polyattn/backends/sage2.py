"""sage_attn by SageAttention 2 (built from its repository): INT8 scores, FP8 or FP16 values.

`sageattn` takes the kernel for the device itself: FP16 with FP32 sums on 8.0, Triton on 8.6,
FP8 on 8.9, 9.0 and 12.x. https://github.com/thu-ml/SageAttention/blob/main/sageattention/core.py
"""

from __future__ import annotations

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
        rows(key),
        rows(value),
        tensor_layout="NHD",
        is_causal=causal,
        sm_scale=softmax_scale,
    )
    return out
