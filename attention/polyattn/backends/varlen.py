"""What the FlashAttention adapters share: equal lengths, or key padding by variable lengths.

The packages differ in names and in what they return, so each adapter brings two functions of one
form; what this project promises of every adapter (nothing of the caller's changed, zeros where a
query sees no key) is done here once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from polyattn.backends.packing import packing, uniform_starts

# (query, key, value, causal, softmax_scale) -> output, all [batch, length, heads, head_dim]
Dense = Callable[[Tensor, Tensor, Tensor, bool, float | None], Tensor]


@dataclass(frozen=True)
class Lengths:
    """The arguments that variable-length kernels call cu_seqlens_* and max_seqlen_*."""

    query_starts: Tensor
    key_starts: Tensor
    longest_query: int
    longest_key: int

    @property
    def keywords(self) -> dict[str, Any]:
        """The four as every FlashAttention's variable-length function names them."""
        return {
            "cu_seqlens_q": self.query_starts,
            "cu_seqlens_k": self.key_starts,
            "max_seqlen_q": self.longest_query,
            "max_seqlen_k": self.longest_key,
        }


# (query, key, value [tokens, heads, head_dim], lengths, causal, softmax_scale) -> output
Variable = Callable[[Tensor, Tensor, Tensor, Lengths, bool, float | None], Tensor]


def attend_by(
    dense: Dense,
    variable: Variable,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    softmax_scale: float | None,
) -> Tensor:
    """Attention by `dense`, or with key padding by `variable`."""
    query, key, value = rows(query), rows(key), rows(value)
    if mask is None:
        return dense(query, key, value, causal, softmax_scale)
    batch, query_len = query.shape[:2]
    packed = packing(mask, batch, key.shape[1])
    lengths = Lengths(
        uniform_starts(batch, query_len, query.device), packed.starts, query_len, packed.longest
    )
    if packed.longest == 0:
        return query.new_zeros(*query.shape[:3], value.shape[3])
    out = variable(
        query.flatten(0, 1), packed.pack(key), packed.pack(value), lengths, causal, softmax_scale
    ).reshape(batch, query_len, query.shape[2], value.shape[3])
    if packed.empty is not None:
        # Kernels differ in what they write for an item without keys.
        out = out.masked_fill(packed.empty[:, None, None, None], 0.0)
    return out


def equal_lengths(
    variable: Variable,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool,
    softmax_scale: float | None,
) -> Tensor:
    """Equal lengths by a kernel that has the variable form only."""
    batch, query_len = query.shape[:2]
    kv_len = key.shape[1]
    lengths = Lengths(
        uniform_starts(batch, query_len, query.device),
        uniform_starts(batch, kv_len, key.device),
        query_len,
        kv_len,
    )
    out = variable(
        query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1), lengths, causal, softmax_scale
    )
    return out.reshape(batch, query_len, query.shape[2], value.shape[3])


def rows(tensor: Tensor) -> Tensor:
    """The tensor with each head's numbers side by side, copied only where they are not."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()
