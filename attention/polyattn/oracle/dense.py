"""The definition of dense attention: matmul and softmax in float64, written to be read.

Every adapter is compared with this, so what is unclear between libraries has one meaning here:

- Layout is [batch, sequence, heads, head_dim], the one that diffusers' dispatcher uses.
- Causal alignment is top-left: query i sees keys 0..i, whatever the two lengths are. It is what
  torch's scaled_dot_product_attention(is_causal=True) does and what diffusers therefore assumes;
  flash-attn >= 2.1 aligns bottom-right, which differs whenever the lengths do, so an adapter of
  it must not be given a causal call of unequal lengths as it stands.
- A mask and `causal` both hold: a key is seen when both allow it.
- A query row that sees no key gives zeros, and -inf as its log-sum-exp.
"""

from __future__ import annotations

import torch
from torch import Tensor


def scores(
    query: Tensor,
    key: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    softmax_scale: float | None = None,
) -> Tensor:
    """The masked, scaled scores in float64, [batch, heads, query length, key length].

    -inf stands where a query does not see a key. Arguments are those of `attend`.
    """
    heads, kv_heads, head_dim = query.shape[2], key.shape[2], query.shape[3]
    if heads % kv_heads:
        raise ValueError(f"{kv_heads} key heads do not divide {heads} query heads")
    scale = head_dim**-0.5 if softmax_scale is None else softmax_scale
    q = query.double().transpose(1, 2)
    # Grouped heads: query head h reads key head h // (heads / kv_heads).
    k = key.double().transpose(1, 2).repeat_interleave(heads // kv_heads, dim=1)
    result = q @ k.transpose(-2, -1) * scale
    if mask is not None:
        if mask.dtype is torch.bool:
            result = result.masked_fill(~mask, -torch.inf)
        else:
            result = result + mask.double()
    if causal:
        query_len, kv_len = result.shape[-2:]
        seen = torch.ones(query_len, kv_len, dtype=torch.bool, device=result.device).tril()
        result = result.masked_fill(~seen, -torch.inf)
    return result


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    softmax_scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Dense attention and its log-sum-exp, both in float64.

    query: [B, Sq, H, D]; key: [B, Sk, Hkv, D]; value: [B, Sk, Hkv, Dv]; any floating dtype, Hkv
    divides H. mask: bool (True means: attend) or floating (added to the scaled scores),
    broadcastable to [B, H, Sq, Sk]. softmax_scale: None means D**-0.5.
    Returns the output [B, Sq, H, Dv] and the natural log-sum-exp of the scores [B, H, Sq].
    """
    masked = scores(query, key, mask=mask, causal=causal, softmax_scale=softmax_scale)
    groups = query.shape[2] // key.shape[2]
    v = value.double().transpose(1, 2).repeat_interleave(groups, dim=1)
    log_sum_exp = torch.logsumexp(masked, dim=-1)
    weights = torch.softmax(masked, dim=-1)
    # softmax of a row of -inf is NaN: such a row sees nothing, so its weights are zeros.
    weights = weights.masked_fill(log_sum_exp.isneginf().unsqueeze(-1), 0.0)
    return (weights @ v).transpose(1, 2), log_sum_exp
