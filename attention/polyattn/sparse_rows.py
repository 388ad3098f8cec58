"""The rows of the sparse backends: each by torch operations anywhere, and by Triton on GPUs.

Semantics: docs/sparse.md and polyattn.oracle.sparse. The torch rows come first until the Triton
ones have been run on hardware; ask for those by name (`sta_triton`).
"""

from __future__ import annotations

import dataclasses
from typing import Final

from polyattn import rules
from polyattn.call import AttentionCall
from polyattn.facts import PlatformFacts
from polyattn.implementation import HALF, UNMASKED, Implementation, Needs
from polyattn.sparse.options import (
    SlidingTileOptions,
    VideoSparseOptions,
    VMoBAOptions,
    check_sliding_tile,
    check_video_sparse,
    check_vmoba,
    dense_sliding_tile,
    dense_vmoba,
    first_dense_sliding_tile,
    first_dense_vmoba,
    names,
)
from polyattn.vocabulary import Backend, Fidelity, PlatformName, Role

_ANYWHERE: Final = Needs(
    masks=UNMASKED,
    roles=(Role.SELF, Role.JOINT),
    causal=False,
    grouped_heads=False,
    lse=False,
    grid=True,
    rules=(rules.same_value_dim,),
)


def _linux(_: AttentionCall | None, facts: PlatformFacts) -> str | None:
    """Linux, where torch brings Triton."""
    return None if facts.system == "Linux" else f"needs Triton, which {facts.system} has not"


# tests/unit/polyattn/test_sparse_triton.py compiles for these, and runs Triton's interpreter.
_COMPILED: Final = "compiled ahead of time for each architecture; not run on hardware"
_TRITON: Final = dataclasses.replace(
    _ANYWHERE,
    platforms=(PlatformName.CUDA, PlatformName.ROCM),
    architectures=(
        "sm_80",
        "sm_86",
        "sm_89",
        "sm_90",
        "sm_100",
        "sm_103",
        "sm_120",
        "sm_121",
        "gfx90a",
        "gfx942",
        "gfx950",
    ),
    dtypes=HALF,
    max_head_dim=256,
    head_dim_multiple=16,
    rules=(rules.same_value_dim, _linux),
)

SPARSE: Final[tuple[Implementation, ...]] = (
    Implementation(
        name="sta",
        backend=Backend.SLIDING_TILE_ATTN,
        title="Sliding tile attention, in torch operations",
        bind="polyattn.backends.sliding_tile:bind",
        fidelity=Fidelity.SPARSE,
        evidence="run on a CPU; not run on other hardware",
        options=names(SlidingTileOptions),
        check_options=check_sliding_tile,
        dense_steps=first_dense_sliding_tile,
        dense_by_option=dense_sliding_tile,
        needs=_ANYWHERE,
    ),
    Implementation(
        name="sta_triton",
        backend=Backend.SLIDING_TILE_ATTN,
        title="Sliding tile attention, by polyattn's Triton kernel",
        bind="polyattn.backends.sliding_tile_triton:bind",
        fidelity=Fidelity.SPARSE,
        evidence=_COMPILED,
        options=names(SlidingTileOptions),
        check_options=check_sliding_tile,
        dense_steps=first_dense_sliding_tile,
        dense_by_option=dense_sliding_tile,
        needs=_TRITON,
    ),
    Implementation(
        name="vsa",
        backend=Backend.VIDEO_SPARSE_ATTN,
        title="Video sparse attention, in torch operations",
        bind="polyattn.backends.video_sparse:bind",
        fidelity=Fidelity.SPARSE,
        evidence="run on a CPU; not run on other hardware",
        options=names(VideoSparseOptions),
        check_options=check_video_sparse,
        needs=_ANYWHERE,
    ),
    Implementation(
        name="vsa_triton",
        backend=Backend.VIDEO_SPARSE_ATTN,
        title="Video sparse attention, by polyattn's Triton kernel",
        bind="polyattn.backends.video_sparse_triton:bind",
        fidelity=Fidelity.SPARSE,
        evidence=_COMPILED,
        options=names(VideoSparseOptions),
        check_options=check_video_sparse,
        needs=_TRITON,
    ),
    Implementation(
        name="vmoba",
        backend=Backend.VMOBA_ATTN,
        title="VMoBA: mixture of block attention for video, in torch operations",
        bind="polyattn.backends.vmoba:bind",
        fidelity=Fidelity.SPARSE,
        evidence="run on a CPU; not run on other hardware",
        options=names(VMoBAOptions),
        check_options=check_vmoba,
        dense_steps=first_dense_vmoba,
        dense_by_option=dense_vmoba,
        needs=_ANYWHERE,
    ),
    Implementation(
        name="vmoba_triton",
        backend=Backend.VMOBA_ATTN,
        title="VMoBA: mixture of block attention for video, by polyattn's Triton kernel",
        bind="polyattn.backends.vmoba_triton:bind",
        fidelity=Fidelity.SPARSE,
        evidence=_COMPILED,
        options=names(VMoBAOptions),
        check_options=check_vmoba,
        dense_steps=first_dense_vmoba,
        dense_by_option=dense_vmoba,
        needs=_TRITON,
    ),
)
