"""VMoBA against its definition, and the definition against worked examples."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import embedding_bag

from polyattn.backends.vmoba import layer_chunks
from polyattn.call import Grid
from polyattn.oracle import dense
from polyattn.oracle import sparse as oracle
from polyattn.sparse import vmoba as module
from polyattn.sparse.options import VMoBAOptions
from polyattn.sparse.vmoba import Selection, vmoba
from tests.unit.polyattn.sparse_cases import DTYPES, GRIDS, assert_close, tensors

# As the three kinds of layer cut their chunks; the last temporal chunk of 5 frames is short.
CHUNKS = {
    "temporal": lambda grid: (2, grid.height, grid.width),
    "spatial": lambda grid: (grid.frames, 3, 4),
    "st": lambda grid: (2, 3, 4),
}
SELECTIONS = [
    *(
        Selection(kind, topk)
        for kind in ("query_head", "head_global", "overall")
        for topk in (1, 3)
    ),
    *(
        Selection(kind, threshold=share)
        for kind in ("query_head", "head_global", "overall", "block")
        for share in (0.25, 0.8)
    ),
]


def definition(grid: Grid, chunk: tuple[int, int, int], selection: Selection) -> oracle.Chunks:
    return oracle.Chunks(chunk, selection.kind, selection.topk, selection.threshold)


@pytest.mark.parametrize("selection", SELECTIONS, ids=str)
@pytest.mark.parametrize(
    ("kind", "grid"),
    [("temporal", GRIDS[1]), ("spatial", GRIDS[3]), ("st", GRIDS[4]), ("st", GRIDS[2])],
    ids=str,
)
def test_is_what_the_oracle_defines(selection: Selection, kind: str, grid: Grid) -> None:
    query, key, value = tensors(grid)
    chunk = CHUNKS[kind](grid)
    output = vmoba(query, key, value, grid, chunk, selection, 0.25)
    masks = oracle.vmoba_masks(query, key, grid, definition(grid, chunk, selection))
    assert_close(output, value, lambda v: oracle.attend(query, key, v, masks))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("selection", [SELECTIONS[1], SELECTIONS[6]], ids=str)
def test_in_every_dtype(dtype: torch.dtype, selection: Selection) -> None:
    grid, chunk = Grid(5, 6, 7, text=3), (2, 3, 4)
    query, key, value = tensors(grid, dtype)
    output = vmoba(query, key, value, grid, chunk, selection, 0.25)
    masks = oracle.vmoba_masks(query, key, grid, definition(grid, chunk, selection))
    assert_close(output, value, lambda v: oracle.attend(query, key, v, masks))


@pytest.mark.parametrize("selection", [SELECTIONS[1], SELECTIONS[6]], ids=str)
def test_working_in_parts_changes_nothing(
    selection: Selection, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid, chunk = GRIDS[1], (2, 3, 4)
    query, key, value = tensors(grid)
    whole = vmoba(query, key, value, grid, chunk, selection, 0.25)
    monkeypatch.setattr(module, "PAIR_BYTES", 4 * 16 * 100)
    monkeypatch.setattr(module, "_ROWS", 37)
    parts = vmoba(query, key, value, grid, chunk, selection, 0.25)
    torch.testing.assert_close(parts, whole, atol=1e-6, rtol=0)


def test_pairs_are_merged_alike_where_embedding_bag_may_be_missing() -> None:
    parts, weights = torch.randn(12, 5), torch.rand(12)
    place, bags = torch.randperm(12), torch.tensor([0, 1, 5, 7])
    expected = embedding_bag(place, parts, bags, mode="sum", per_sample_weights=weights)
    torch.testing.assert_close(module.summed(place, parts, bags, weights), expected)


def test_every_chunk_is_dense_attention() -> None:
    for grid in GRIDS:
        query, key, value = tensors(grid)
        expected, _ = dense.attend(query, key, value)
        for selection in (Selection("query_head", 99), Selection("query_head", threshold=1.0)):
            output = vmoba(query, key, value, grid, (2, 3, 4), selection, 0.25)
            torch.testing.assert_close(output.double(), expected, atol=1e-5, rtol=0)


def test_top_1_sees_its_own_chunk_and_is_not_full() -> None:
    # Upstream turns to full attention where no other chunk is selected anywhere.
    grid = Grid(2, 2, 2)
    query, key, _ = tensors(grid)
    (mask, _) = oracle.vmoba_masks(query, key, grid, oracle.Chunks((1, 2, 2), "query_head", 1))
    assert mask.int().sum(dim=-1).unique().tolist() == [4]
    assert mask[0, 0].tolist() == [True] * 4 + [False] * 4


def test_layers_take_turns() -> None:
    options = VMoBAOptions(first_full_layer=1, temporal_layer=1, spatial_layer=2, st_layer=1)
    grid = Grid(20, 30, 52)
    kinds = {(2, 30, 52): "temporal", (20, 3, 4): "spatial", (4, 6, 4): "st"}
    found = [kinds[layer_chunks(options, grid, layer)[0]] for layer in range(1, 8)]
    assert found == ["temporal", "spatial", "spatial", "st", "temporal", "spatial", "spatial"]
    defined = [oracle.vmoba_chunk_kind(layer, 1, (1, 2, 1)) for layer in range(8)]
    assert defined == [None, *found]
