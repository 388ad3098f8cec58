"""video_sparse_attn in torch operations: any grid, exact over the chosen cubes.

The cubes are chosen as VSA does (https://arxiv.org/abs/2505.13389): docs/sparse.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from polyattn.call import AttentionCall
from polyattn.progress import Progress
from polyattn.sparse.options import VideoSparseOptions, read
from polyattn.sparse.video_sparse import kept, video_sparse


def bind(
    call: AttentionCall,
    options: Mapping[str, object],
    progress: Progress,
    kernel: Callable[..., Tensor] = video_sparse,
) -> Callable[..., Tensor]:
    """The attend function of one site. Raises InvalidOptions."""
    chosen = read(VideoSparseOptions, options)
    grid = call.grid
    assert grid is not None, "a need of the row"
    topk, _ = kept(grid, chosen.sparsity, chosen.topk_rule)
    coarse = chosen.coarse == "add"

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        softmax_scale: float | None = None,
    ) -> Tensor:
        scale = query.shape[3] ** -0.5 if softmax_scale is None else softmax_scale
        return kernel(query, key, value, grid, topk, scale, coarse=coarse)

    return attend
