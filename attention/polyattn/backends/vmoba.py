"""vmoba_attn in torch operations: any grid, exact over the selected chunks.

The chunks are selected as VMoBA does (https://arxiv.org/abs/2506.23858): docs/sparse.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from polyattn.call import AttentionCall, Grid
from polyattn.errors import UnsupportedCall
from polyattn.progress import Progress
from polyattn.sparse.options import Triple, VMoBAOptions, read
from polyattn.sparse.vmoba import Selection, vmoba


def bind(
    call: AttentionCall,
    options: Mapping[str, object],
    progress: Progress,
    kernel: Callable[..., Tensor] = vmoba,
) -> Callable[..., Tensor]:
    """The attend function of one site. Raises InvalidOptions or UnsupportedCall."""
    chosen = read(VMoBAOptions, options)
    grid = call.grid
    assert grid is not None, "a need of the row"
    layer = call.site.layer if call.site is not None else 0
    if layer is None:
        raise UnsupportedCall(
            f"vmoba_attn changes from layer to layer, and {call.site} has no layer number."
        )
    chunk, topk = layer_chunks(chosen, grid, layer)
    if chosen.moba_select_mode == "topk":
        selection = Selection(chosen.moba_threshold_type, topk=topk)
    else:
        selection = Selection(chosen.moba_threshold_type, threshold=chosen.moba_threshold)

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        softmax_scale: float | None = None,
    ) -> Tensor:
        scale = query.shape[3] ** -0.5 if softmax_scale is None else softmax_scale
        return kernel(query, key, value, grid, chunk, selection, scale)

    return attend


def layer_chunks(options: VMoBAOptions, grid: Grid, layer: int) -> tuple[Triple, int]:
    """The chunk size in tokens and the top-k of a layer that is not full."""
    temporal, spatial = options.temporal_layer, options.spatial_layer
    turn = (layer - options.first_full_layer) % (temporal + spatial + options.st_layer)
    if turn < temporal:
        return (options.temporal_chunk_size, grid.height, grid.width), options.temporal_topk
    if turn < temporal + spatial:
        return (grid.frames, *options.spatial_chunk_size), options.spatial_topk
    return options.st_chunk_size, options.st_topk
