"""The three sparse backends by the one Triton kernel; signatures as those of the torch kernels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from polyattn.call import Grid
from polyattn.sparse import vmoba as by_torch
from polyattn.sparse.block_lists import (
    pair_lists,
    per_head,
    sliding_tile_lists,
    table,
    text_rows,
)
from polyattn.sparse.blocks import Blocks, cut, video_and_text
from polyattn.sparse.options import Triple
from polyattn.sparse.triton_block_sparse import BLOCK_M, block_sparse
from polyattn.sparse.video_sparse import CUBE, best
from polyattn.sparse.vmoba import Selection


def sliding_tile(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grid: Grid,
    tile: Triple,
    windows: Sequence[Triple],
    scale: float,
) -> Tensor:
    """polyattn.sparse.sliding_tile.sliding_tile by block lists."""
    query, key, value = _rows_contiguous(query, key, value)
    found = [sliding_tile_lists(grid, tile, window, BLOCK_M, query.device) for window in windows]
    query_tokens, key_tokens = found[0][:2]  # the same whatever the window
    counts, lists = per_head([each[2] for each in found], [each[3] for each in found])
    out = _text(query, key, value, grid, scale)
    block_sparse(query, key, value, query_tokens, key_tokens, counts, lists, scale, out=out)
    return out


def video_sparse(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grid: Grid,
    topk: int,
    scale: float,
    *,
    coarse: bool = False,
) -> Tensor:
    """polyattn.sparse.video_sparse.video_sparse by block lists; the gate is not served here."""
    query, key, value = _rows_contiguous(query, key, value)
    blocks = cut(grid.frames, grid.height, grid.width, CUBE, query.device)
    video, _ = video_and_text(grid)
    means = [_means(tensor[:, video], blocks) for tensor in (query, key)]
    scores = means[0] @ means[1].transpose(2, 3) * scale
    cubes = table(blocks, BLOCK_M, video.start).tokens
    words = text_rows(grid, BLOCK_M).to(query.device)
    chosen = best(scores, topk).flatten(0, 1)
    numbers = torch.arange(len(cubes), len(cubes) + len(words), device=query.device)
    lists = torch.cat([chosen, numbers.expand(*chosen.shape[:2], -1)], dim=2).to(torch.int32)
    counts = torch.full_like(lists[:, :, 0], lists.shape[2])
    out = _text(query, key, value, grid, scale)
    block_sparse(
        query,
        key,
        value,
        cubes[None].contiguous(),
        torch.cat([cubes, words]),
        counts.contiguous(),
        lists.contiguous(),
        scale,
        out=out,
    )
    if coarse:
        spread = scores.softmax(dim=-1) @ _means(value[:, video], blocks)
        cube_of = torch.empty_like(blocks.of)
        cube_of[blocks.order] = blocks.of
        added = spread.index_select(2, cube_of).transpose(1, 2)
        out[:, video] = (out[:, video].float() + added).to(out.dtype)
    return out


def vmoba(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grid: Grid,
    chunk: Triple,
    selection: Selection,
    scale: float,
) -> Tensor:
    """polyattn.sparse.vmoba.vmoba, its pairs by one launch per head."""
    return by_torch.vmoba(query, key, value, grid, chunk, selection, scale, pairs=_pairs)


def _pairs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    blocks: Blocks,
    rows: Tensor,
    counts: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor]:
    chunks = table(blocks, BLOCK_M, arranged=True)
    largest = max(b - a for a, b in zip(blocks.starts, blocks.starts[1:], strict=False))
    tokens, seen, lists, slots = pair_lists(rows, counts, chunks, -(-largest // BLOCK_M), BLOCK_M)
    q, k, v = (tensor[None, :, None] for tensor in (query, key, value))
    out, lse = block_sparse(q, k, v, tokens, chunks.tokens, seen, lists, scale, by_slot=True)
    return out[0, slots, 0], lse[0, slots, 0]


def _rows_contiguous(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The kernel reads a token's values at one stretch."""
    return tuple(t if t.stride(-1) == 1 else t.contiguous() for t in tensors)


def _text(query: Tensor, key: Tensor, value: Tensor, grid: Grid, scale: float) -> Tensor:
    """The output tensor, with the text's rows computed: they see everything."""
    out = torch.empty_like(query)
    _, text = video_and_text(grid)
    if grid.text:
        q, k, v = (tensor.transpose(1, 2) for tensor in (query[:, text], key, value))
        out[:, text] = scaled_dot_product_attention(q, k, v, scale=scale).transpose(1, 2)
    return out


def _means(tokens: Tensor, blocks: Blocks) -> Tensor:
    """[batch, video tokens, heads, dim] as block means [batch, heads, blocks, dim] in float32."""
    arranged = tokens.index_select(1, blocks.order).transpose(1, 2).float()
    sums = arranged.new_zeros(*arranged.shape[:2], blocks.count, arranged.shape[3])
    return sums.index_add_(2, blocks.of, arranged) / blocks.sizes[:, None]
