"""Dense attention of one head over the pieces that the sparse kernels cut out."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

# MPS holds all scores of a call; above 2**31 elements it has computed wrong ones
# (https://github.com/pytorch/pytorch/issues/149261). Far below, it is also the memory bound.
_MPS_SCORES: Final = 2**27


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """[batch, query_len, dim] over [batch, kv_len, dim]."""
    if query.device.type == "mps":
        rows = max(1, _MPS_SCORES // (query.shape[0] * key.shape[1]))
        if rows < query.shape[1]:
            parts = torch.split(query, rows, dim=1)
            return torch.cat([_attend(part, key, value, scale) for part in parts], dim=1)
    return _attend(query, key, value, scale)


def _attend(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    return scaled_dot_product_attention(
        query[:, None], key[:, None], value[:, None], scale=scale
    ).squeeze(1)


def attend_with_lse(
    query: Tensor, key: Tensor, value: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """[query_len, dim] over [kv_len, dim]: the result, and the log-sum-exp in float32."""
    if query.device.type == "cpu" and query.dtype is not torch.float64:
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query[None, None], key[None, None], value[None, None], 0.0, False, scale=scale
        )
        return out[0, 0], lse[0, 0]
    scores = (query.float() * scale) @ key.float().t()
    lse = scores.logsumexp(dim=-1)
    return (scores - lse[:, None]).exp() @ value.float(), lse


def merge(out: Tensor, lse: Tensor, other: Tensor, other_lse: Tensor) -> Tensor:
    """Two results over disjoint keys as one, in float32."""
    return torch.lerp(out, other.float(), torch.sigmoid(other_lse - lse)[:, None])
