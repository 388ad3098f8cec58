"""Attention as in diffusers' Wan, with the one thing training needs: a weight on the pad.

WanPipeline pads text to 512 tokens with zero embeddings and masks none of them, so hundreds of
equal pads take most of the cross attention and the words are not learned. All pads being equal,
n of them weigh as one with log(n) added to its score. Training therefore runs on short text whose
last token is always a pad, and lets n grow from 1 to what the pipeline will have.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

TEXT_LENGTH = 24
"""Tokens of text in training: longer than every caption, so that the last one is a pad."""
PIPELINE_TEXT_LENGTH = 512


def pad_bias(progress: Tensor | float) -> Tensor:
    """(TEXT_LENGTH,) to add to the scores; the last column stands for 1 to 489 pads."""
    full = math.log(PIPELINE_TEXT_LENGTH - TEXT_LENGTH + 1)
    bias = torch.zeros(TEXT_LENGTH)
    bias[-1] = float(progress) * full
    return bias


class TrainingAttention:
    """A processor equal to WanAttnProcessor but for the bias; no dispatcher, so it compiles."""

    def __init__(self, bias: Tensor) -> None:
        self.bias = bias

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        rotary_emb: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        context = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        query = attn.norm_q(attn.to_q(hidden_states)).unflatten(2, (attn.heads, -1))
        key = attn.norm_k(attn.to_k(context)).unflatten(2, (attn.heads, -1))
        value = attn.to_v(context).unflatten(2, (attn.heads, -1))
        if rotary_emb is not None:
            query, key = _rotate(query, *rotary_emb), _rotate(key, *rotary_emb)
        mask = None
        if encoder_hidden_states is not None:
            mask = self.bias.to(query.dtype).view(1, 1, 1, -1)
        query, key, value = (t.to(value.dtype).transpose(1, 2) for t in (query, key, value))
        # Written out: on CPU the backward pass of the fused kernel took 40 % of a training step.
        scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
        if mask is not None:
            scores = scores + mask
        out = scores.float().softmax(-1).to(value.dtype) @ value
        out = out.transpose(1, 2).flatten(2, 3)
        result: Tensor = attn.to_out[0](out)
        return result


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)  # type: ignore[no-untyped-call]
    c, s = cos[..., 0::2], sin[..., 1::2]
    return torch.stack([even * c - odd * s, even * s + odd * c], -1).flatten(-2).type_as(x)
