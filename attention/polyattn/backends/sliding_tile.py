"""sliding_tile_attn in torch operations: any grid, any device, exact within the windows.

The windows are those of STA (https://arxiv.org/abs/2502.04507): docs/sparse.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from polyattn.call import AttentionCall
from polyattn.errors import UnsupportedCall
from polyattn.progress import Progress
from polyattn.sparse.mask_strategy import MaskStrategy, load
from polyattn.sparse.options import WINDOW, SlidingTileOptions, Triple, read
from polyattn.sparse.sliding_tile import sliding_tile


def bind(
    call: AttentionCall,
    options: Mapping[str, object],
    progress: Progress,
    kernel: Callable[..., Tensor] = sliding_tile,
) -> Callable[..., Tensor]:
    """The attend function of one site. Raises InvalidOptions; while running UnsupportedCall."""
    if progress.recorder is not None:
        return progress.recorder.bind(call, progress)
    chosen = read(SlidingTileOptions, options)
    grid = call.grid
    assert grid is not None, "a need of the row"
    path = chosen.mask_strategy_file_path
    strategy = None if path is None else load(path)
    if strategy is not None:
        _check_fits(strategy, call)
    everywhere = (chosen.window or WINDOW,) * call.heads

    def windows() -> tuple[Triple, ...]:
        if strategy is None:
            return everywhere
        _check_steps(strategy, progress)
        assert call.site is not None
        return strategy.windows[progress.step][call.site.layer or 0]

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        softmax_scale: float | None = None,
    ) -> Tensor:
        scale = query.shape[3] ** -0.5 if softmax_scale is None else softmax_scale
        return kernel(query, key, value, grid, chosen.tile_size, windows(), scale)

    return attend


def _check_fits(strategy: MaskStrategy, call: AttentionCall) -> None:
    site = call.site
    if site is None or site.layer is None:
        raise UnsupportedCall(
            f"The mask strategy {strategy.name} has a window per layer, and {site or 'this call'} "
            "has no layer number. Give a window instead."
        )
    if site.layer >= strategy.layers:
        raise UnsupportedCall(
            f"The mask strategy {strategy.name} has {strategy.layers} layers; {site} is layer "
            f"{site.layer}, counted from 0. It was made for another model."
        )
    if call.heads != strategy.heads:
        raise UnsupportedCall(
            f"The mask strategy {strategy.name} has {strategy.heads} heads and {site} has "
            f"{call.heads}. It was made for another model."
        )


def _check_steps(strategy: MaskStrategy, progress: Progress) -> None:
    steps = progress.steps or progress.step + 1
    if max(steps, progress.step + 1) > strategy.steps:
        raise UnsupportedCall(
            f"The mask strategy {strategy.name} has windows for {strategy.steps} denoising steps; "
            f"this generation has {steps}. Use at most as many steps, or make a strategy for "
            "more: ditport sta search."
        )
