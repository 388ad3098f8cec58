"""The definitions of sparse video attention: which key a query sees, as booleans, in float64.

Written from the semantics (docs/sparse.md), token by token and slowly; the kernels share neither
the window nor the selection code. All masks are [heads, tokens, tokens] over the whole sequence
of one batch entry. In every one of them text tokens see all and are seen by all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from polyattn.call import Grid
from polyattn.oracle import dense


def attend(query: Tensor, key: Tensor, value: Tensor, masks: Sequence[Tensor]) -> Tensor:
    """Dense attention under one mask per batch entry, in float64."""
    return dense.attend(query, key, value, mask=torch.stack(list(masks)))[0]


def _coordinates(grid: Grid) -> list[tuple[int, int, int]]:
    return [
        (t, h, w) for t in range(grid.frames) for h in range(grid.height) for w in range(grid.width)
    ]


def _with_text(video: Tensor, grid: Grid) -> Tensor:
    """A mask of video tokens, grown by text that sees all and is seen by all."""
    length = grid.tokens + grid.text
    whole = torch.ones(*video.shape[:-2], length, length, dtype=torch.bool)
    first = grid.text if grid.text_first else 0
    whole[..., first : first + grid.tokens, first : first + grid.tokens] = video
    return whole


def _video(tokens: Tensor, grid: Grid) -> Tensor:
    first = grid.text if grid.text_first else 0
    return tokens[first : first + grid.tokens]


# --- sliding tile attention ------------------------------------------------------------------


def _tile_sees(query_tile: int, key_tile: int, tiles: int, window: int) -> bool:
    """Along one axis: key tiles within window // 2 of the query's tile, its centre clamped.

    An even window reaches as far as the next odd one; one that is as wide as the axis is the axis.
    """
    reach = window // 2
    if 2 * reach + 1 >= tiles:
        return True
    centre = min(max(query_tile, reach), tiles - 1 - reach)
    return abs(key_tile - centre) <= reach


def sliding_tile_mask(
    grid: Grid, tile: tuple[int, int, int], windows: Sequence[tuple[int, int, int]]
) -> Tensor:
    """One window, in tiles, per head. Border tiles may be smaller."""
    sizes = (grid.frames, grid.height, grid.width)
    tiles = [math.ceil(n / t) for n, t in zip(sizes, tile, strict=True)]
    places = _coordinates(grid)
    masks = torch.zeros(len(windows), grid.tokens, grid.tokens, dtype=torch.bool)
    for head, window in enumerate(windows):
        axis_sees = [
            torch.tensor(
                [
                    [_tile_sees(q // tile[axis], k // tile[axis], tiles[axis], window[axis])
                     for k in range(sizes[axis])]
                    for q in range(sizes[axis])
                ]
            )
            for axis in range(3)
        ]  # fmt: skip
        t, h, w = (torch.tensor([place[axis] for place in places]) for axis in range(3))
        masks[head] = (
            axis_sees[0][t[:, None], t] & axis_sees[1][h[:, None], h] & axis_sees[2][w[:, None], w]
        )
    return _with_text(masks, grid)


# --- video sparse attention ------------------------------------------------------------------


def video_sparse_topk(grid: Grid, sparsity: float, rule: str) -> int:
    """How many cubes a cube keeps: a share of the cubes, or of the tokens counted as cubes."""
    cubes = math.ceil(grid.frames / 4) * math.ceil(grid.height / 4) * math.ceil(grid.width / 4)
    wanted = {
        "blocks": math.ceil((1 - sparsity) * cubes),
        "tokens": math.ceil((1 - sparsity) * grid.tokens / 64),
    }[rule]
    return max(1, min(wanted, cubes))


def _members(grid: Grid, block: tuple[int, int, int]) -> list[list[int]]:
    """The token numbers of each block, blocks in row-major order."""
    found: dict[tuple[int, int, int], list[int]] = {}
    for number, (t, h, w) in enumerate(_coordinates(grid)):
        found.setdefault((t // block[0], h // block[1], w // block[2]), []).append(number)
    return [found[place] for place in sorted(found)]


def _block_means(tokens: Tensor, members: list[list[int]]) -> Tensor:
    return torch.stack([tokens[numbers].double().mean(dim=0) for numbers in members])


def video_sparse(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grid: Grid,
    topk: int,
    softmax_scale: float | None = None,
    *,
    coarse: bool = False,
    gate: Tensor | None = None,
) -> Tensor:
    """[batch, sequence, heads, dim]: a cube's tokens see the cubes whose means score highest.

    Of equal scores the cube that comes first is kept. `coarse` adds attention over the means of
    cubes, unweighted by their sizes, times `gate` (1 where None).
    """
    scale = query.shape[3] ** -0.5 if softmax_scale is None else softmax_scale
    members = _members(grid, (4, 4, 4))
    masks, added = [], torch.zeros(query.shape, dtype=torch.float64)
    for b in range(query.shape[0]):
        mask = torch.zeros(query.shape[2], grid.tokens, grid.tokens, dtype=torch.bool)
        for head in range(query.shape[2]):
            q, k, v = (_video(t[b, :, head], grid) for t in (query, key, value))
            scores = _block_means(q, members) @ _block_means(k, members).t() * scale
            coarse_values = scores.softmax(dim=-1) @ _block_means(v, members)
            for cube, numbers in enumerate(members):
                row = scores[cube].tolist()
                ranked = sorted(range(len(row)), key=lambda c: (-row[c], c))
                keys = [number for c in ranked[:topk] for number in members[c]]
                mask[head, torch.tensor(numbers)[:, None], torch.tensor(keys)] = True
                if coarse:
                    rows = torch.tensor(numbers)
                    weight = 1.0 if gate is None else gate[b, rows, head].double()
                    _video(added[b, :, head], grid)[rows] = coarse_values[cube] * weight
        masks.append(_with_text(mask, grid))
    fine, _ = dense.attend(query, key, value, mask=torch.stack(masks), softmax_scale=softmax_scale)
    return fine + added


# --- VMoBA -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chunks:
    """A layer's chunk kind and its selection: `topk`, or a `threshold` where topk is None."""

    size: tuple[int, int, int]
    kind: str  # query_head, head_global, block, overall
    topk: int | None = None
    threshold: float = 0.0


def vmoba_chunk_kind(layer: int, first_full_layer: int, cycle: tuple[int, int, int]) -> str | None:
    """temporal, spatial or spatio-temporal, by the layer's place in the cycle; None is full.

    Upstream documents first_full_layer and first_full_step as full attention but reads neither to
    that end; here, layers and steps before them are full.
    """
    if layer < first_full_layer:
        return None
    kinds = ["temporal"] * cycle[0] + ["spatial"] * cycle[1] + ["st"] * cycle[2]
    return kinds[(layer - first_full_layer) % len(kinds)]


def vmoba_masks(query: Tensor, key: Tensor, grid: Grid, chunks: Chunks) -> list[Tensor]:
    """The masks of a layer, one per batch entry.

    A query always sees its own chunk. Where nothing else is selected anywhere, upstream switches
    to full attention; here the own chunk is all.
    """
    members = _members(grid, chunks.size)
    own = {number: c for c, numbers in enumerate(members) for number in numbers}
    masks = []
    for b in range(query.shape[0]):
        gate = torch.stack(
            [
                _video(query[b, :, head], grid).double()
                @ _block_means(_video(key[b, :, head], grid), members).t()
                for head in range(query.shape[2])
            ]
        )
        groups: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}
        for head in range(gate.shape[0]):
            for number in range(gate.shape[1]):
                for c in range(gate.shape[2]):
                    name = {
                        "query_head": (head, number),
                        "head_global": (head,),
                        "block": (c,),
                        "overall": (),
                    }[chunks.kind]
                    groups.setdefault(name, []).append((head, number, c))
        seen = torch.zeros(gate.shape, dtype=torch.bool)
        values = gate.tolist()
        for entries in groups.values():
            chosen = _by_topk if chunks.topk is not None else _by_threshold
            for head, number, c in chosen(entries, values, own, chunks, gate.shape):
                seen[head, number, c] = True
        mask = torch.zeros(gate.shape[0], grid.tokens, grid.tokens, dtype=torch.bool)
        for c, numbers in enumerate(members):
            mask[:, :, torch.tensor(numbers)] = seen[:, :, c : c + 1]
        masks.append(_with_text(mask, grid))
    return masks


Entry = tuple[int, int, int]
Gates = list[list[list[float]]]


def _by_topk(
    entries: list[Entry], gate: Gates, own: dict[int, int], chunks: Chunks, shape: torch.Size
) -> list[Entry]:
    """The own entries first, then the best, in all topk per query (and head) of the group."""
    assert chunks.topk is not None
    queries = len({(head, number) for head, number, _ in entries})
    ranked = sorted(entries, key=lambda e: (e[2] != own[e[1]], -gate[e[0]][e[1]][e[2]], e))
    return ranked[: chunks.topk * queries]


def _by_threshold(
    entries: list[Entry], gate: Gates, own: dict[int, int], chunks: Chunks, shape: torch.Size
) -> list[Entry]:
    """The own entries, and the best others up to the one that reaches the threshold."""
    values = [gate[head][number][c] for head, number, c in entries]
    low, spread = min(values), max(values) - min(values)
    if spread <= 1e-6:
        spread = 1.0
    weight = {e: (v - low) / spread for e, v in zip(entries, values, strict=True)}
    mine = [e for e in entries if e[2] == own[e[1]]]
    others = sorted((e for e in entries if e[2] != own[e[1]]), key=lambda e: -weight[e])
    total = math.fsum(weight.values()) + 1e-6
    wanted = max(chunks.threshold - math.fsum(weight[e] for e in mine) / total, 0.0)
    taken, reached = list(mine), 0.0
    for entry in others:
        taken.append(entry)
        reached += weight[entry]
        if reached / total >= wanted:
            break
    return taken
