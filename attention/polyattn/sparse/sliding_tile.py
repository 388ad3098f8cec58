"""Sliding tile attention by slabs: no gather, no mask, any grid.

Along each axis, query tiles whose windows are clamped to the same range form one group. For a pair
of groups along two axes, the keys of their windows are copied once with the third axis outermost;
then the window along that axis is a contiguous slice, and attention runs on views of the copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from polyattn.call import Grid
from polyattn.sparse.attention import attend
from polyattn.sparse.blocks import video_and_text
from polyattn.sparse.heads import each_head
from polyattn.sparse.options import Triple


class Span(NamedTuple):
    """Along one axis: the queries first..last see the keys key_first..key_last (ends excluded)."""

    first: int
    last: int
    key_first: int
    key_last: int


def spans(tokens: int, tile: int, window: int) -> tuple[Span, ...]:
    """The groups of query tiles along an axis. An even window is as wide as the next odd one."""
    tiles = -(-tokens // tile)
    reach = window // 2
    width = 2 * reach + 1
    if width >= tiles:
        return (Span(0, tokens, 0, tokens),)
    found: list[Span] = []
    for index in range(tiles):
        start = min(max(index - reach, 0), tiles - width)
        first, last = index * tile, min((index + 1) * tile, tokens)
        keys = start * tile, min((start + width) * tile, tokens)
        if found and found[-1].key_first == keys[0]:
            found[-1] = found[-1]._replace(last=last)
        else:
            found.append(Span(first, last, *keys))
    return tuple(found)


class Plan(NamedTuple):
    """The spans per axis, and the axes from the outermost of the copies inwards."""

    axes: tuple[tuple[Span, ...], tuple[Span, ...], tuple[Span, ...]]
    order: Triple

    @property
    def full(self) -> bool:
        """Whether every query sees every key."""
        return all(len(spans) == 1 for spans in self.axes)


@lru_cache(maxsize=256)
def plan(frames: int, height: int, width: int, tile: Triple, window: Triple) -> Plan:
    """How to compute one window on one grid."""
    sizes = (frames, height, width)
    found = [spans(n, t, w) for n, t, w in zip(sizes, tile, window, strict=True)]
    # The more windows share a copy, the fewer copies.
    slab = max(range(3), key=lambda axis: len(found[axis]))
    rest = [axis for axis in range(3) if axis != slab]
    return Plan((found[0], found[1], found[2]), (slab, rest[0], rest[1]))


def density(grid: Grid, tile: Triple, windows: Iterable[Triple]) -> float:
    """The share of query-key pairs that are computed, over all heads, text included."""
    every, seen, heads = (grid.tokens + grid.text) ** 2, 0, 0
    for window in windows:
        axes = plan(grid.frames, grid.height, grid.width, tile, window).axes
        pairs = prod(
            sum((s.last - s.first) * (s.key_last - s.key_first) for s in axis) for axis in axes
        )
        seen += pairs + 2 * grid.tokens * grid.text + grid.text**2
        heads += 1
    return seen / (every * heads)


def sliding_tile(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grid: Grid,
    tile: Triple,
    windows: Sequence[Triple],
    scale: float,
) -> Tensor:
    """[batch, sequence, heads, dim] with one window per head. Text sees and is seen by all."""
    out = torch.empty_like(query)

    def one_head(head: int) -> None:
        how = plan(grid.frames, grid.height, grid.width, tile, windows[head])
        q, k, v, o = (tensor[:, :, head] for tensor in (query, key, value, out))
        if how.full:
            o.copy_(attend(q, k, v, scale))
            return
        video, text = video_and_text(grid)
        words = None
        if grid.text:
            words = (k[:, text], v[:, text])
            o[:, text] = attend(q[:, text], k, v, scale)
        on_grid = (q.shape[0], grid.frames, grid.height, grid.width, q.shape[2])
        q, k, v, o = (tensor[:, video].view(on_grid) for tensor in (q, k, v, o))
        _video(q, k, v, o, words, how, scale)

    each_head(query, query.shape[2], one_head)
    return out


def _video(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    words: tuple[Tensor, Tensor] | None,
    how: Plan,
    scale: float,
) -> None:
    """One head of [batch, frames, height, width, dim]; `words` are keys and values for all."""
    axes = (0, *(axis + 1 for axis in how.order), 4)
    query, key, value, out = (t.permute(axes) for t in (query, key, value, out))
    slab, second, third = (how.axes[axis] for axis in how.order)
    for b in second:
        for c in third:
            q = query[:, :, b.first : b.last, c.first : c.last].flatten(1, 3)
            k = key[:, :, b.key_first : b.key_last, c.key_first : c.key_last].flatten(1, 3)
            v = value[:, :, b.key_first : b.key_last, c.key_first : c.key_last].flatten(1, 3)
            rows = (b.last - b.first) * (c.last - c.first)
            keys = (b.key_last - b.key_first) * (c.key_last - c.key_first)
            for a in slab:
                seen = slice(a.key_first * keys, a.key_last * keys)
                window_k, window_v = k[:, seen], v[:, seen]
                if words is not None:
                    window_k = torch.cat([window_k, words[0]], dim=1)
                    window_v = torch.cat([window_v, words[1]], dim=1)
                part = attend(q[:, a.first * rows : a.last * rows], window_k, window_v, scale)
                place = out[:, a.first : a.last, b.first : b.last, c.first : c.last]
                place.copy_(part.view(place.shape))
