"""Sliding tile attention against its definition, and the definition against worked examples."""

from __future__ import annotations

import pytest
import torch

from polyattn.call import Grid
from polyattn.errors import UnsupportedCall
from polyattn.oracle import dense
from polyattn.oracle import sparse as oracle
from polyattn.sparse.sliding_tile import density, plan, sliding_tile, spans
from tests.unit.polyattn.sparse_cases import DTYPES, GRIDS, assert_close, tensors

TILE = (2, 2, 3)
WINDOWS = (
    ((3, 3, 3), (1, 3, 1)),
    ((2, 1, 3), (9, 9, 9)),  # even; full
    ((3, 9, 1), (1, 1, 1)),
)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("windows", WINDOWS, ids=str)
def test_is_what_the_oracle_defines(grid: Grid, windows: tuple[tuple[int, int, int], ...]) -> None:
    query, key, value = tensors(grid)
    output = sliding_tile(query, key, value, grid, TILE, windows, 0.25)
    masks = [oracle.sliding_tile_mask(grid, TILE, windows)] * 2
    assert_close(output, value, lambda v: oracle.attend(query, key, v, masks))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_in_every_dtype_and_with_the_default_tile(dtype: torch.dtype) -> None:
    grid, windows = Grid(7, 9, 17, text=3), ((1, 1, 1), (2, 1, 3))
    query, key, value = tensors(grid, dtype, batch=1)
    output = sliding_tile(query, key, value, grid, (6, 8, 8), windows, 0.25)
    masks = [oracle.sliding_tile_mask(grid, (6, 8, 8), windows)]
    assert_close(output, value, lambda v: oracle.attend(query, key, v, masks))


def test_a_window_over_everything_is_dense_attention() -> None:
    grid = Grid(5, 6, 7, text=2)
    query, key, value = tensors(grid)
    output = sliding_tile(query, key, value, grid, TILE, ((3, 3, 3), (5, 4, 3)), 0.25)
    expected, _ = dense.attend(query[:, :, 1:], key[:, :, 1:], value[:, :, 1:])
    torch.testing.assert_close(output[:, :, 1:].double(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("window", "seen"),
    [
        (1, [{0}, {1}, {2}, {3}, {4}]),
        (3, [{0, 1, 2}, {0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {2, 3, 4}]),
        (2, [{0, 1, 2}, {0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {2, 3, 4}]),
        (4, [{0, 1, 2, 3, 4}] * 5),
    ],
)
def test_the_windows_of_five_tiles(window: int, seen: list[set[int]]) -> None:
    grid = Grid(1, 1, 5)
    mask = oracle.sliding_tile_mask(grid, (1, 1, 1), [(1, 1, window)])[0]
    assert [set(row.nonzero().flatten().tolist()) for row in mask] == seen
    found = [
        set(range(span.key_first, span.key_last))
        for span in spans(5, 1, window)
        for _ in range(span.first, span.last)
    ]
    assert found == seen


def test_clamping_leaves_few_different_windows() -> None:
    # Upstream's Wan canvas 18x48x80: 3x6x10 tiles, of which 3x3x3 windows are 1x4x8 different.
    axes = plan(18, 48, 80, (6, 8, 8), (3, 3, 3)).axes
    assert [len(axis) for axis in axes] == [1, 4, 8]
    assert density(Grid(18, 48, 80), (6, 8, 8), [(3, 3, 3)]) == 0.15


def test_density_is_the_share_of_true_entries() -> None:
    for grid in GRIDS:
        mask = oracle.sliding_tile_mask(grid, TILE, WINDOWS[0])
        assert density(grid, TILE, WINDOWS[0]) == pytest.approx(mask.double().mean().item())


def test_does_not_change_its_arguments_and_takes_strided_ones() -> None:
    grid = GRIDS[3]
    query, key, value = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in tensors(grid))
    before = [t.clone() for t in (query, key, value)]
    output = sliding_tile(query, key, value, grid, TILE, WINDOWS[0], 0.25)
    assert torch.equal(output, sliding_tile(*tensors(grid), grid, TILE, WINDOWS[0], 0.25))
    assert all(torch.equal(t, b) for t, b in zip((query, key, value), before, strict=True))


def test_a_pool_over_heads_gives_the_same_bits() -> None:
    grid, windows = GRIDS[3], ((1, 3, 1),) * 4
    query, key, value = tensors(grid, heads=4)
    single = sliding_tile(query, key, value, grid, TILE, windows, 0.25)
    torch.set_num_threads(2)
    try:
        with torch.inference_mode():
            pooled = sliding_tile(query, key, value, grid, TILE, windows, 0.25)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert torch.equal(single, pooled)


def test_gradients_are_refused_rather_than_lost() -> None:
    query, key, value = tensors(GRIDS[0])
    with pytest.raises(UnsupportedCall, match="no gradients"):
        sliding_tile(query.requires_grad_(), key, value, GRIDS[0], TILE, WINDOWS[0], 0.25)
