"""Measuring windows: each attention call in full, and beside it every candidate window.

`Recorder.bind` takes the place of a row's `bind`. The model runs on full attention; what each
window would have changed is kept per step, layer and head, averaged over the calls of a step
(guidance makes two).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Final

import torch
from torch import Tensor

from polyattn.backends import torch_sdpa
from polyattn.call import AttentionCall, Grid
from polyattn.errors import InvalidOptions, UnsupportedCall
from polyattn.progress import Progress
from polyattn.sparse.options import Triple
from polyattn.sparse.sliding_tile import density, sliding_tile
from polyattn.sparse.tuning import Losses

# Upstream's for its Wan canvas of 3x6x10 tiles (69x768x1280 pixels).
_UPSTREAM: Final = {
    (3, 6, 10): ((3, 1, 10), (1, 5, 7), (3, 3, 3), (1, 6, 5), (1, 3, 10), (3, 6, 1)),
}


def tiles_of(grid: Grid, tile: Triple) -> Triple:
    """How many tiles there are along each axis."""
    sizes = (grid.frames, grid.height, grid.width)
    first, second, third = (-(-n // t) for n, t in zip(sizes, tile, strict=True))
    return first, second, third


def candidates(tiles: Triple) -> tuple[Triple, ...]:
    """The windows that are tried: upstream's, or 3 tiles on some axes and all on the others."""
    if tiles in _UPSTREAM:
        return _UPSTREAM[tiles]
    found = product(*((3, n) if n > 3 else (1, n) if n > 1 else (1,) for n in tiles))
    return tuple((t, h, w) for t, h, w in found if (t, h, w) != tiles)


class Recorder:
    """What has been measured of one attached pipeline."""

    def __init__(self, tile: Triple, windows: Sequence[Triple] = ()) -> None:
        self.tile = tile
        self.windows = tuple(windows)
        self.grid: Grid | None = None
        self._sums: dict[tuple[int, int], Tensor] = {}  # (step, layer) -> [heads, windows]
        self._calls: dict[tuple[int, int], int] = {}

    def bind(self, call: AttentionCall, progress: Progress) -> Callable[..., Tensor]:
        """The attend function of one site: full attention, measured."""
        grid, site = call.grid, call.site
        assert grid is not None, "a need of the row"
        if site is None or site.layer is None:
            raise UnsupportedCall(f"{site or 'This call'} has no layer number to measure for.")
        layer = site.layer
        if self.grid is not None and self.grid != grid:
            raise UnsupportedCall(
                f"The search saw the grids {self.grid} and {grid}; measure one size at a time."
            )
        self.grid = grid
        self.windows = self.windows or candidates(tiles_of(grid, self.tile))
        if not self.windows:
            raise InvalidOptions(
                f"The grid {grid} is one tile of {'x'.join(map(str, self.tile))} tokens: there is "
                "no window to try. Give a smaller --tile-size."
            )

        def attend(
            query: Tensor,
            key: Tensor,
            value: Tensor,
            mask: Tensor | None = None,
            causal: bool = False,
            softmax_scale: float | None = None,
        ) -> Tensor:
            full = torch_sdpa.attend(query, key, value, None, False, softmax_scale)
            scale = query.shape[3] ** -0.5 if softmax_scale is None else softmax_scale
            losses = [
                self._loss(
                    full,
                    sliding_tile(
                        query, key, value, grid, self.tile, (window,) * query.shape[2], scale
                    ),
                )
                for window in self.windows
            ]
            place = (progress.step, layer)
            found = torch.stack(losses, dim=1)
            self._sums[place] = self._sums[place] + found if place in self._sums else found
            self._calls[place] = self._calls.get(place, 0) + 1
            return full

        return attend

    @staticmethod
    def _loss(full: Tensor, sparse: Tensor) -> Tensor:
        return (sparse.float() - full.float()).square().mean(dim=(0, 1, 3))

    def take(self) -> Losses:
        """What was measured since the last call. Raises InvalidOptions where nothing was."""
        if self.grid is None or not self._sums:
            raise InvalidOptions(
                "Nothing was measured: no self-attention of the model had a known token grid."
            )
        steps, layers = (max(place[axis] for place in self._sums) + 1 for axis in range(2))
        holes = [(s, n) for s in range(steps) for n in range(layers) if (s, n) not in self._sums]
        if holes:
            raise InvalidOptions(
                f"Layer {holes[0][1]} was not measured at step {holes[0][0]}: the model does not "
                "run every layer at every step, and a mask strategy needs them all."
            )
        l2 = tuple(
            tuple(
                tuple(tuple(values) for values in (self._sums[s, n] / self._calls[s, n]).tolist())
                for n in range(layers)
            )
            for s in range(steps)
        )
        found = Losses(
            str(self.grid),
            self.tile,
            tiles_of(self.grid, self.tile),
            self.windows,
            tuple(density(self.grid, self.tile, [window]) for window in self.windows),
            l2,
        )
        self._sums.clear()
        self._calls.clear()
        return found
