"""What the tests of the three sparse backends share: grids, tensors and the allowed error."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from polyattn.call import Grid
from polyattn.oracle.tolerance import EXACT

# Even, ragged on every axis, one frame, text after, text before.
GRIDS = (
    Grid(4, 8, 8),
    Grid(5, 6, 7),
    Grid(1, 9, 10),
    Grid(5, 6, 7, text=5),
    Grid(3, 8, 9, text=4, text_first=True),
)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def tensors(
    grid: Grid, dtype: torch.dtype = torch.float32, batch: int = 2, heads: int = 2, dim: int = 16
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of a whole sequence, the same at every call."""
    generator = torch.Generator().manual_seed(grid.tokens + grid.text)
    shape = (3, batch, grid.tokens + grid.text, heads, dim)
    query, key, value = torch.randn(shape, generator=generator).to(dtype)
    return query, key, value


def assert_close(
    output: Tensor,
    value: Tensor,
    oracle: Callable[[Tensor], Tensor],
) -> None:
    """Within the rounding of the dtype; in float32 within 1e-5 of the oracle as well."""
    assert output.dtype is value.dtype
    error = (output.double() - oracle(value)).abs()
    # |value| goes through the same weights: rounding is relative to what was summed.
    magnitude = oracle(value.double().abs())
    assert bool((error <= magnitude * EXACT[value.dtype]).all())
    if value.dtype is torch.float32:
        assert error.max() < 1e-5
