"""Which chunks a query of VMoBA attends to, from the gate: query times mean key of each chunk.

Both strategies judge groups of (head, query, chunk) entries: all chunks of one query and head
("query_head"), all entries of a head ("head_global"), of a chunk ("block"), or all ("overall").
A query's own chunk is always selected.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

_EPSILON: Final = 1e-6  # upstream's, part of the rule
# Kinds whose groups span heads, so that all heads' gates are needed at once.
ACROSS_HEADS: Final = frozenset({"block", "overall"})


def by_topk(gate: Tensor, own: Tensor, topk: int, kind: str) -> Tensor:
    """Booleans [heads, queries, chunks]: on average `topk` chunks a query, its own included.

    gate: [heads, queries, chunks]; own [queries]: each query's chunk.
    """
    heads, queries, chunks = gate.shape
    each = {"query_head": 1, "head_global": queries, "overall": queries * heads}[kind]
    groups = _grouped(gate.masked_fill(_own_mask(own, chunks), torch.inf), kind)
    count = min(topk * each, groups.shape[1])
    selected = torch.zeros_like(groups, dtype=torch.bool)
    selected.scatter_(1, groups.topk(count, dim=1, sorted=False).indices, True)
    return _ungrouped(selected, gate.shape, kind)


def by_threshold(gate: Tensor, own: Tensor, threshold: float, kind: str) -> Tensor:
    """Booleans [heads, queries, chunks]: enough of the best for a share of the group's weight.

    Weights are the gate scaled to 0..1 within the group. Of the entries that are nobody's own,
    the best are taken until own and taken reach `threshold` of the sum; the one that reaches it
    is taken too, so that at least one is.
    """
    shape, chunks = gate.shape, gate.shape[2]
    mine = _grouped(_own_mask(own, chunks).expand(shape), kind)
    weights = _grouped(gate, kind)
    low, high = weights.amin(dim=1, keepdim=True), weights.amax(dim=1, keepdim=True)
    spread = high - low
    weights = (weights - low) / torch.where(spread <= _EPSILON, 1.0, spread)
    # Long sums are kept in float64: float32 would lose the small weights. MPS has no float64,
    # and there the long groups are summed in pieces by the device itself.
    wide = torch.float32 if gate.device.type == "mps" else torch.float64
    total = weights.sum(dim=1, keepdim=True, dtype=wide) + _EPSILON
    held = weights.masked_fill(~mine, 0.0).sum(dim=1, keepdim=True, dtype=wide)
    wanted = (threshold - held / total).clamp(min=0.0)
    ranked, places = weights.masked_fill(mine, -1.0).sort(dim=1, descending=True)
    short = ranked.clamp_(min=0.0).cumsum(dim=1, dtype=wide) / total < wanted
    taken = torch.ones_like(short)
    taken[:, 1:] = short[:, :-1]
    selected = torch.zeros_like(short).scatter_(1, places, taken)
    return _ungrouped(selected | mine, shape, kind)


def _own_mask(own: Tensor, chunks: int) -> Tensor:
    return own[:, None] == torch.arange(chunks, device=own.device)


def _grouped(entries: Tensor, kind: str) -> Tensor:
    """[heads, queries, chunks] as [groups, members]."""
    heads, _, chunks = entries.shape
    if kind == "query_head":
        return entries.reshape(-1, chunks)
    if kind == "block":
        return entries.permute(2, 0, 1).reshape(chunks, -1)
    return entries.reshape(heads if kind == "head_global" else 1, -1)


def _ungrouped(groups: Tensor, shape: torch.Size, kind: str) -> Tensor:
    heads, queries, chunks = shape
    if kind == "block":
        return groups.view(chunks, heads, queries).permute(1, 2, 0)
    return groups.view(shape)
