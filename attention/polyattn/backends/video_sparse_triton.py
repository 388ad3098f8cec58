"""video_sparse_attn by the Triton kernel for CUDA and ROCm; not run on hardware."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from polyattn.backends import video_sparse
from polyattn.call import AttentionCall
from polyattn.progress import Progress
from polyattn.sparse import triton_attention


def bind(
    call: AttentionCall, options: Mapping[str, object], progress: Progress
) -> Callable[..., Tensor]:
    """As video_sparse.bind."""
    return video_sparse.bind(call, options, progress, triton_attention.video_sparse)
