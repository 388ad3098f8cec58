"""Block lists: they name exactly the keys that the oracle's masks allow, without a host sync."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from polyattn.call import Grid
from polyattn.oracle import sparse as oracle
from polyattn.sparse.block_lists import pair_lists, sliding_tile_lists, table
from polyattn.sparse.blocks import cut, video_and_text
from tests.unit.polyattn.sparse_cases import GRIDS

CPU = torch.device("cpu")


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("window", [(3, 3, 3), (2, 1, 3), (9, 9, 9)], ids=str)
@pytest.mark.parametrize("size", [4, 64])
def test_sliding_tile_lists_are_the_mask(
    grid: Grid, window: tuple[int, int, int], size: int
) -> None:
    query_tokens, key_tokens, counts, lists = sliding_tile_lists(grid, (2, 2, 3), window, size, CPU)
    length = grid.tokens + grid.text
    seen = torch.zeros(length, length, dtype=torch.int)
    for block, queries in enumerate(query_tokens[0]):
        keys = key_tokens[lists[0, block, : counts[0, block]].long()].flatten()
        rows, columns = queries[queries >= 0].long(), keys[keys >= 0].long()
        seen[rows[:, None], columns] += 1
    expected = oracle.sliding_tile_mask(grid, (2, 2, 3), [window])[0]
    video, _ = video_and_text(grid)
    assert torch.equal(seen[video], expected[video].int())  # every key once
    assert lists.max() < len(key_tokens)


def pairs(queries: int, chunks: int) -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.rand(queries, chunks, generator=torch.Generator().manual_seed(0)) < 0.4
    mask[:, 2] = False  # a chunk that nobody selects
    chunk, rows = mask.t().nonzero(as_tuple=True)
    return rows, torch.bincount(chunk, minlength=chunks)


def test_pair_lists_hold_every_pair_once() -> None:
    blocks = cut(5, 6, 7, (2, 3, 4), CPU)
    chunks = table(blocks, 4, arranged=True)
    rows, counts = pairs(210, blocks.count)
    tokens, seen, lists, slots = pair_lists(rows, counts, chunks, 6, 4)
    assert torch.equal(tokens.flatten()[slots].long(), rows)
    assert int((tokens >= 0).sum()) == len(rows)
    chunk_of = torch.repeat_interleave(torch.arange(blocks.count), counts)
    for slot, chunk in zip(slots.tolist(), chunk_of.tolist(), strict=True):
        entry = lists[0, slot // 4, : seen[0, slot // 4]].long()
        keys = chunks.tokens[entry].flatten()
        assert keys[keys >= 0].tolist() == list(
            range(blocks.starts[chunk], blocks.starts[chunk + 1])
        )


def test_pair_lists_never_wait_for_the_device() -> None:
    blocks = cut(5, 6, 7, (2, 3, 4), CPU)
    chunks = table(blocks, 4, arranged=True)
    rows, counts = pairs(210, blocks.count)
    # A fake tensor has no contents: reading any on the host raises.
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = (mode.from_tensor(rows), mode.from_tensor(counts))
        tokens, *_ = pair_lists(*fake, chunks, 6, 4)
    assert tokens.shape == (1, -(-len(rows) // 4) + blocks.count, 4)
