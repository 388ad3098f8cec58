"""torch_sdpa where the device holds every score at once: a part of the queries at a time.

Metal's SDPA is silently wrong from about 2^31 scores and fails beyond 2^32 bytes of them:
https://github.com/pytorch/pytorch/issues/149261. Rows of the result do not depend on each other,
so the parts are exact.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polyattn.backends import torch_sdpa
from polyattn.rules import MOST_SCORES


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    softmax_scale: float | None = None,
) -> Tensor:
    """See polyattn.backends for shapes. Any dtype that torch computes; exact."""
    return in_parts(query, key, value, mask, causal, softmax_scale, MOST_SCORES)


def in_parts(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    softmax_scale: float | None,
    most_scores: int,
) -> Tensor:
    """Attention with less than `most_scores` scores at once, one query per item at the least."""
    batch, query_len, heads, _ = query.shape
    kv_len = key.shape[1]
    rows = max(1, (most_scores - 1) // max(1, batch * heads * kv_len))
    out = query.new_empty(batch, query_len, heads, value.shape[3])
    for start in range(0, query_len, rows):
        end = min(start + rows, query_len)
        part = slice(start, end)
        own = mask
        if mask is not None and mask.dim() >= 2 and mask.shape[-2] > 1:
            own = mask[..., part, :]
        if causal:
            own = _with_causal(own, start, end, kv_len, query.device)
        out[:, part] = torch_sdpa.attend(query[:, part], key, value, own, False, softmax_scale)
    return out


def _with_causal(
    mask: Tensor | None, start: int, end: int, kv_len: int, device: torch.device
) -> Tensor:
    queries = torch.arange(start, end, device=device)
    causal = queries[:, None] >= torch.arange(kv_len, device=device)
    if mask is None:
        return causal
    if mask.dtype is torch.bool:
        return mask & causal
    return mask.masked_fill(~causal, float("-inf"))
