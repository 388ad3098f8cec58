"""sage_attn_3 by SageAttention 3 (built from its repository): FP4 on Blackwell.

https://github.com/thu-ml/SageAttention/blob/main/sageattention3_blackwell/sageattn3/api.py
"""

from __future__ import annotations

from sageattn3 import sageattn3_blackwell
from torch import Tensor


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    softmax_scale: float | None = None,
) -> Tensor:
    """See polyattn.backends for shapes. Lossy; no mask, and its own scale (head_dim**-0.5)."""
    assert mask is None  # sageattn3_blackwell takes one and does not read it
    assert softmax_scale is None
    out: Tensor = sageattn3_blackwell(
        query.transpose(1, 2),
        # It subtracts the mean from the caller's keys in place.
        key.transpose(1, 2).clone(),
        value.transpose(1, 2),
        is_causal=causal,
    )
    return out.transpose(1, 2)
