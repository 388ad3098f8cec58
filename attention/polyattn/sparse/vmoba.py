"""VMoBA chunk by chunk: the queries that selected a chunk meet its keys, then results are merged.

Every (query, chunk) pair is computed once, chunks one after the other over contiguous keys; a
pair's result and log-sum-exp go to its place in the pair list, and one fused gather and weighted
sum (embedding_bag) merges each query's pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from polyattn.call import Grid
from polyattn.sparse.attention import attend, attend_with_lse, merge
from polyattn.sparse.blocks import Blocks, cut, video_and_text
from polyattn.sparse.heads import each_head
from polyattn.sparse.options import Triple
from polyattn.sparse.vmoba_selection import ACROSS_HEADS, by_threshold, by_topk

# (query, key, value, blocks, rows, counts, scale) -> results and log-sum-exps: chunk_by_chunk.
Pairs = Callable[[Tensor, Tensor, Tensor, Blocks, Tensor, Tensor, float], tuple[Tensor, Tensor]]

# Bytes of pair results that a head may hold: more queries are worked in several parts.
PAIR_BYTES: Final = 24 * 2**20
# Queries whose chunks are ranked at once.
_ROWS: Final = 4096


@dataclass(frozen=True)
class Selection:
    """How chunks are selected: `topk` chunks, or a `threshold` of the gate's weight."""

    kind: str  # see vmoba_selection
    topk: int | None = None
    threshold: float = 0.0

    def select(self, gate: Tensor, own: Tensor) -> Tensor:
        """Booleans [heads, queries, chunks] for a gate of that shape."""
        if self.topk is not None:
            return by_topk(gate, own, self.topk, self.kind)
        return by_threshold(gate, own, self.threshold, self.kind)


def vmoba(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grid: Grid,
    chunk: Triple,
    selection: Selection,
    scale: float,
    pairs: Pairs | None = None,
) -> Tensor:
    """[batch, sequence, heads, dim]. `chunk` in tokens. Text sees and is seen by all.

    `pairs` computes what `chunk_by_chunk` does, where a device has a better way.
    """
    attend_pairs = pairs or chunk_by_chunk
    blocks = cut(grid.frames, grid.height, grid.width, chunk, query.device)
    video, text = video_and_text(grid)
    out = torch.empty_like(query)
    joint = [
        selection.select(_gates(query[b, video], key[b, video], blocks), blocks.of)
        if selection.kind in ACROSS_HEADS
        else None
        for b in range(query.shape[0])
    ]

    def one_head(head: int) -> None:
        for batch, selected in enumerate(joint):
            q, k, v, o = (tensor[batch, :, head] for tensor in (query, key, value, out))
            if grid.text:
                o[text] = attend(q[text][None], k[None], v[None], scale)[0]
            q_video, k_video, v_video = (blocks.arranged(t[video]) for t in (q, k, v))
            words = k[text], v[text]
            one = _Head(q_video, k_video, v_video, *words, blocks, selection, scale, attend_pairs)
            blocks.restore(one.attend(None if selected is None else selected[head]), o[video])

    each_head(query, query.shape[2], one_head)
    return out


def chunk_by_chunk(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    blocks: Blocks,
    rows: Tensor,
    counts: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Results and log-sum-exps, in float32, of pairs that are listed chunk by chunk.

    query, key, value [tokens, dim] in block order; rows [pairs]: the queries; counts [chunks].
    """
    out = query.new_empty(len(rows), query.shape[1], dtype=torch.float32)
    lse = torch.empty_like(rows, dtype=torch.float32)
    first = 0
    for chunk, count in enumerate(counts.tolist()):
        if count == 0:
            continue
        pairs = slice(first, first + count)
        keys = slice(blocks.starts[chunk], blocks.starts[chunk + 1])
        out[pairs], lse[pairs] = attend_with_lse(
            query.index_select(0, rows[pairs]), key[keys], value[keys], scale
        )
        first += count
    return out, lse


def _gates(query: Tensor, key: Tensor, blocks: Blocks) -> Tensor:
    """[heads, queries in block order, chunks] of [tokens, heads, dim]."""
    return torch.stack(
        [
            _gate(blocks.arranged(query[:, head]), blocks.means(blocks.arranged(key[:, head])))
            for head in range(query.shape[1])
        ]
    )


def _gate(query: Tensor, means: Tensor) -> Tensor:
    # In float32 and without 1/sqrt(dim), as upstream.
    return query.float() @ means.t()


@dataclass(frozen=True, eq=False)
class _Head:
    """One head of one batch entry, in block order."""

    query: Tensor
    key: Tensor
    value: Tensor
    text_key: Tensor
    text_value: Tensor
    blocks: Blocks
    selection: Selection
    scale: float
    pairs: Pairs

    def attend(self, selected: Tensor | None) -> Tensor:
        """The result. `selected` [queries, chunks] where it was decided over all heads."""
        means = self.blocks.means(self.key)
        if selected is None and self.selection.kind == "query_head":
            if self.selection.topk is not None:
                return self._by_fixed_count(means, self.selection.topk)
            selected = torch.cat(
                [
                    self.selection.select(_gate(part, means)[None], own)[0]
                    for part, own in zip(
                        torch.split(self.query, _ROWS),
                        torch.split(self.blocks.of, _ROWS),
                        strict=True,
                    )
                ]
            )
        elif selected is None:
            selected = self.selection.select(_gate(self.query, means)[None], self.blocks.of)[0]
        out = torch.empty_like(self.query)
        for rows in self._parts(int(selected.sum()) / len(selected)):
            out[rows] = self._ragged(self.query[rows], selected[rows])
        return out

    def _parts(self, pairs_per_query: float) -> list[slice]:
        """The queries in parts whose pairs take about PAIR_BYTES."""
        count, dim = self.query.shape
        parts = math.ceil(count * pairs_per_query * dim * 4 / PAIR_BYTES)
        rows = -(-count // parts)
        return [slice(first, min(first + rows, count)) for first in range(0, count, rows)]

    def _by_fixed_count(self, means: Tensor, topk: int) -> Tensor:
        """Top-k per query: every query has the same number of pairs."""
        topk = min(topk, self.blocks.count)
        out = torch.empty_like(self.query)
        for rows in self._parts(topk):
            query, own = self.query[rows], self.blocks.of[rows]
            gate = _gate(query, means)
            gate.scatter_(1, own[:, None], torch.inf)
            chunks = gate.topk(topk, dim=1, sorted=False).indices.flatten()
            # Small numbers sort faster on a processor; Metal is only known to sort wide ones.
            few = query.device.type == "cpu" and self.blocks.count < 2**15
            small = torch.int16 if few else torch.int64
            ranked, order = chunks.to(small).sort(stable=True)
            # Not bincount: on a GPU it would wait for the device to know its length.
            counts = torch.zeros(self.blocks.count, dtype=torch.int64, device=order.device)
            counts.index_add_(0, ranked.long(), torch.ones_like(order))
            parts, lse = self._pairs(query, order // topk, counts)
            place = torch.empty_like(order)
            place[order] = torch.arange(len(order), device=order.device)
            by_query = lse[place].view(-1, topk)
            weights = by_query.softmax(dim=1)
            bags = torch.arange(0, len(order), topk, device=order.device)
            merged = _weighted(place, parts, bags, weights.flatten())
            out[rows] = self._with_text(query, merged, by_query.logsumexp(dim=1))
        return out

    def _ragged(self, query: Tensor, mask: Tensor) -> Tensor:
        """Any number of chunks per query, at least its own."""
        chunks, rows = mask.t().nonzero(as_tuple=True)
        counts = torch.bincount(chunks, minlength=mask.shape[1])
        parts, lse = self._pairs(query, rows, counts)
        place = rows.sort(stable=True).indices
        per_query = mask.sum(dim=1)
        highest = torch.full_like(per_query, -torch.inf, dtype=torch.float32)
        highest.scatter_reduce_(0, rows, lse, "amax")
        weights = (lse - highest[rows]).exp()
        total = torch.zeros_like(highest).index_add_(0, rows, weights)
        bags = per_query.cumsum(0) - per_query
        merged = _weighted(place, parts, bags, (weights / total[rows])[place])
        return self._with_text(query, merged, highest + total.log())

    def _pairs(self, query: Tensor, rows: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        return self.pairs(query, self.key, self.value, self.blocks, rows, counts, self.scale)

    def _with_text(self, query: Tensor, out: Tensor, lse: Tensor) -> Tensor:
        if not len(self.text_key):
            return out
        return merge(out, lse, *attend_with_lse(query, self.text_key, self.text_value, self.scale))


def _weighted(place: Tensor, parts: Tensor, bags: Tensor, weights: Tensor) -> Tensor:
    """Per query the weighted sum of its pairs: parts[place[bags[q] : bags[q + 1]]]."""
    if parts.device.type == "mps":
        return summed(place, parts, bags, weights)
    return embedding_bag(place, parts, bags, mode="sum", per_sample_weights=weights)


def summed(place: Tensor, parts: Tensor, bags: Tensor, weights: Tensor) -> Tensor:
    """The same in basic operations, for devices that may lack weighted embedding_bag."""
    pairs = torch.arange(len(place), device=place.device)
    query = torch.searchsorted(bags, pairs, right=True) - 1
    out = parts.new_zeros(len(bags), parts.shape[1])
    return out.index_add_(0, query, parts[place] * weights[:, None])
