"""torch_sdpa by torch.nn.functional.scaled_dot_product_attention, torch choosing the kernel.

https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    softmax_scale: float | None = None,
) -> Tensor:
    """See polyattn.backends for shapes. Any dtype that torch computes; exact."""
    if mask is None and not causal and softmax_scale is None and query.size(2) == key.size(2):
        # What nearly every call of a DiT is. Keyword arguments would add to its dispatch.
        return scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        ).transpose(1, 2)
    if causal and mask is not None:
        mask, causal = _with_causal(mask, query.shape[1], key.shape[1]), False
    return scaled_dot_product_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        attn_mask=mask,
        is_causal=causal,
        scale=softmax_scale,
        enable_gqa=query.size(2) != key.size(2),
    ).transpose(1, 2)


def _with_causal(mask: Tensor, query_len: int, kv_len: int) -> Tensor:
    """The mask and the causal rule in one: torch's GPU kernels refuse to take both."""
    causal = torch.ones(query_len, kv_len, dtype=torch.bool, device=mask.device).tril()
    if mask.dtype is torch.bool:
        return mask & causal
    return mask.masked_fill(~causal, float("-inf"))
