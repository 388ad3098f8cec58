"""Lists of key blocks per query block, for kernels that walk such lists. Torch only.

Token tables hold the places of a block's tokens in the sequence, padded with -1. What depends on
data is computed by device operations of known sizes: nothing waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import torch
from torch import Tensor

from polyattn.call import Grid
from polyattn.sparse.blocks import Blocks, cut, video_and_text
from polyattn.sparse.options import Triple
from polyattn.sparse.sliding_tile import spans


@dataclass(frozen=True, eq=False)
class Table:
    """Blocks of at most `size` tokens; part `p` owns rows first[p] .. first[p] + rows[p]."""

    tokens: Tensor  # [rows, size] int32
    first: Tensor  # [parts] int64
    rows: Tensor  # [parts] int64


def table(blocks: Blocks, size: int, offset: int = 0, *, arranged: bool = False) -> Table:
    """The blocks of a grid, cut again into rows of at most `size` tokens.

    `arranged`: places count in block order rather than in the sequence.
    """
    device = blocks.order.device
    order = torch.arange(len(blocks.order)) if arranged else blocks.order.cpu()
    rows: list[Tensor] = []
    first: list[int] = []
    counts: list[int] = []
    for start, end in zip(blocks.starts, blocks.starts[1:], strict=False):
        first.append(len(rows))
        rows += list(torch.split(order[start:end] + offset, size))
        counts.append(len(rows) - first[-1])
    return Table(
        _padded(rows, size).to(device), *(torch.tensor(n, device=device) for n in (first, counts))
    )


def _padded(rows: list[Tensor], size: int) -> Tensor:
    tokens = torch.full((len(rows), size), -1, dtype=torch.int32)
    for row, places in enumerate(rows):
        tokens[row, : len(places)] = places
    return tokens


def text_rows(grid: Grid, size: int) -> Tensor:
    """The text tokens in rows of `size`: [rows, size]."""
    _, text = video_and_text(grid)
    if not grid.text:
        return torch.empty(0, size, dtype=torch.int32)
    return _padded(list(torch.split(torch.arange(text.start, text.stop), size)), size)


@lru_cache(maxsize=64)
def sliding_tile_lists(
    grid: Grid, tile: Triple, window: Triple, size: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(query tokens, key tokens, counts, lists) of one window; text is a key of all."""
    video, _ = video_and_text(grid)
    sizes = (grid.frames, grid.height, grid.width)
    tiles = table(cut(*sizes, tile, torch.device("cpu")), size, video.start)
    words = text_rows(grid, size)
    key_tokens = torch.cat([tiles.tokens, words])
    word_rows = list(range(len(tiles.tokens), len(key_tokens)))
    first, rows = tiles.first.tolist(), tiles.rows.tolist()
    axes = [
        [
            range(span.key_first // t, -(-span.key_last // t))
            for span in spans(n, t, w)
            for _ in range(-(-(span.last - span.first) // t))
        ]
        for n, t, w in zip(sizes, tile, window, strict=True)
    ]
    _, tall, wide = (len(axis) for axis in axes)
    lists: list[list[int]] = []
    for number, seen in enumerate(product(*axes)):
        numbers = [(a * tall + b) * wide + c for a, b, c in product(*seen)]
        keys = [row for n in numbers for row in range(first[n], first[n] + rows[n])]
        lists += [keys + word_rows] * rows[number]
    counts = torch.tensor([[len(keys) for keys in lists]], dtype=torch.int32)
    padded = torch.zeros(1, len(lists), int(counts.max()), dtype=torch.int32)
    for row, keys in enumerate(lists):
        padded[0, row, : len(keys)] = torch.tensor(keys, dtype=torch.int32)
    found = (tiles.tokens[None].contiguous(), key_tokens, counts, padded)
    query_tokens, key_tokens, counts, padded = (tensor.to(device) for tensor in found)
    return query_tokens, key_tokens, counts, padded


def per_head(counts: list[Tensor], lists: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The lists of several heads as one, padded to the widest."""
    width = max(each.shape[2] for each in lists)
    padded = [torch.nn.functional.pad(each, (0, width - each.shape[2])) for each in lists]
    return torch.cat(counts), torch.cat(padded).contiguous()


def pair_lists(
    rows: Tensor, counts: Tensor, chunks: Table, width: int, size: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(query tokens, counts, lists, slots) for (query, chunk) pairs that are sorted by chunk.

    rows [pairs]: the queries; counts [chunks]: how many pairs each chunk has. A query block holds
    pairs of one chunk; slots [pairs] are the places of the pairs among all slots. `width` is the
    largest number of rows of a chunk.
    """
    number, parts, device = len(rows), len(counts), rows.device
    blocks = (counts + size - 1) // size
    ends = blocks.cumsum(0)
    bound = -(-number // size) + parts  # blocks, whatever the counts are
    chunk = torch.repeat_interleave(torch.arange(parts, device=device), counts, output_size=number)
    within = torch.arange(number, device=device) - (counts.cumsum(0) - counts)[chunk]
    slots = (ends - blocks)[chunk] * size + within
    tokens = torch.full((bound * size,), -1, dtype=torch.int32, device=device)
    tokens[slots] = rows.to(torch.int32)
    owner = torch.searchsorted(ends, torch.arange(bound, device=device), right=True)
    real, owner = owner < parts, owner.clamp(max=parts - 1)
    seen = torch.where(real, chunks.rows[owner], 0).to(torch.int32)
    lists = chunks.first[owner][:, None] + torch.arange(width, device=device)
    lists = lists.clamp(max=len(chunks.tokens) - 1).to(torch.int32)
    return tokens.view(1, bound, size), seen[None], lists[None].contiguous(), slots
