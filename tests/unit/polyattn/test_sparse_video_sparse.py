"""Video sparse attention against its definition, and the definition against worked examples."""

from __future__ import annotations

import pytest
import torch

from polyattn.call import Grid
from polyattn.oracle import dense
from polyattn.oracle import sparse as oracle
from polyattn.sparse.video_sparse import best, kept, video_sparse
from tests.unit.polyattn.sparse_cases import DTYPES, GRIDS, assert_close, tensors


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("coarse", ["off", "add", "gated"])
def test_is_what_the_oracle_defines(grid: Grid, sparsity: float, coarse: str) -> None:
    query, key, value = tensors(grid)
    topk, _ = kept(grid, sparsity, "blocks")
    gate = torch.randn(2, grid.tokens, 2, 16) if coarse == "gated" else None
    how = {"coarse": coarse != "off", "gate": gate}
    output = video_sparse(query, key, value, grid, topk, 0.25, **how)
    expected = oracle.video_sparse(query, key, value, grid, topk, **how)
    torch.testing.assert_close(output.double(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("grid", [Grid(4, 8, 12), Grid(5, 9, 10, text=3)], ids=str)
def test_in_every_dtype(dtype: torch.dtype, grid: Grid) -> None:
    query, key, value = tensors(grid, dtype)
    output = video_sparse(query, key, value, grid, 3, 0.25)
    assert_close(output, value, lambda v: oracle.video_sparse(query, key, v, grid, 3))


def test_without_sparsity_it_is_dense_attention() -> None:
    for grid in GRIDS:
        query, key, value = tensors(grid)
        output = video_sparse(query, key, value, grid, kept(grid, 0.0, "blocks")[0], 0.25)
        expected, _ = dense.attend(query, key, value)
        torch.testing.assert_close(output.double(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("grid", "sparsity", "blocks", "tokens"),
    [
        (Grid(20, 32, 52), 0.9, 52, 52),  # no ragged cube: 520 of them
        (Grid(21, 30, 52), 0.9, 63, 52),  # 624 cubes, 32760 tokens
        (Grid(21, 30, 52), 0.0, 624, 512),
        (Grid(4, 4, 4), 1.0, 1, 1),
    ],
    ids=str,
)
def test_the_two_rules_of_how_many_cubes_are_kept(
    grid: Grid, sparsity: float, blocks: int, tokens: int
) -> None:
    for rule, expected in (("blocks", blocks), ("tokens", tokens)):
        assert kept(grid, sparsity, rule)[0] == expected
        assert oracle.video_sparse_topk(grid, sparsity, rule) == expected


def test_of_equal_scores_the_first_is_kept() -> None:
    scores = torch.tensor([[1.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    assert best(scores, 2).tolist() == [[1, 2], [0, 1]]
    # The same in the definition: constant queries and keys make every score equal.
    grid = Grid(4, 4, 16)
    query = torch.ones(1, grid.tokens, 1, 8)
    value = torch.randn(1, grid.tokens, 1, 8)
    expected = oracle.video_sparse(query, query, value, grid, 2)
    output = video_sparse(query, query, value, grid, 2, 8**-0.5)
    torch.testing.assert_close(output.double(), expected, atol=1e-5, rtol=0)
