"""The one opaque operator that stands for attention while torch compiles.

A traced Python counter, a ContextVar or a selector would recompile or break the graph
(facts/hot-path.md), so a compiled graph holds one call of `polyattn::attend`. Its body runs when
the graph runs: it finds the site by a number that travels as a 0-d CPU tensor (so that equal
blocks share one graph), selects, counts and attends exactly as eager code does.

CUDA graphs replay kernels without running this body, so the operator is tagged as unsafe for
them: torch then leaves it out of the captured part.
"""

# No `from __future__ import annotations`: torch.library reads the annotations as types.
import itertools
import weakref
from typing import TYPE_CHECKING, Optional

import torch
from torch import Tensor

if TYPE_CHECKING:
    from polyattn.layers import LocalAttention

_numbers = itertools.count()
_layers: "weakref.WeakValueDictionary[int, LocalAttention]" = weakref.WeakValueDictionary()
_TAGS = tuple(
    getattr(torch.Tag, name) for name in ("cudagraph_unsafe",) if hasattr(torch.Tag, name)
)


def register(layer: "LocalAttention") -> Tensor:
    """Give a layer its number, as a 0-d int64 CPU tensor. The layer is not kept alive."""
    number = next(_numbers)
    _layers[number] = layer
    return torch.tensor(number, device="cpu")


@torch.library.custom_op("polyattn::attend", mutates_args=(), tags=_TAGS)
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor],  # noqa: UP045  torch.library reads the annotation itself
    site: Tensor,
    grid: list[int],
    causal: bool,
    softmax_scale: Optional[float],  # noqa: UP045
) -> Tensor:
    """As LocalAttention; `site` is the layer's number, `grid` its GridKey as a list."""
    layer = _layers[int(site)]
    out = layer(query, key, value, mask, causal, softmax_scale, tuple(grid))
    return out.contiguous()


@attend.register_fake
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Optional[Tensor],  # noqa: UP045
    site: Tensor,
    grid: list[int],
    causal: bool,
    softmax_scale: Optional[float],  # noqa: UP045
) -> Tensor:
    return query.new_empty(*query.shape[:3], value.shape[3])
