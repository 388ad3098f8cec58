"""The closed vocabularies: one enum per concept, one word per meaning.

Backend names are a `str` wherever a registered entry point may add one; `Backend` lists those
that this project serves itself.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal


class Word(str, Enum):
    """A closed vocabulary whose members print as their value in messages, JSON and tables."""

    def __str__(self) -> str:
        return str(self.value)


class PlatformName(Word):
    """Where tensors live: the four platforms that a row in platforms.py describes."""

    CUDA = "cuda"
    ROCM = "rocm"
    MPS = "mps"
    CPU = "cpu"


class Backend(Word):
    """The backend names a user may choose; `fa3` and the like are aliases, see ALIASES."""

    FA = "fa"
    TORCH_SDPA = "torch_sdpa"
    SAGE_ATTN = "sage_attn"
    SAGE_ATTN_3 = "sage_attn_3"
    AITER = "aiter"
    SLIDING_TILE_ATTN = "sliding_tile_attn"
    VIDEO_SPARSE_ATTN = "video_sparse_attn"
    VMOBA_ATTN = "vmoba_attn"


class Role(Word):
    """What an attention site does: within one sequence, across two, or over text and image."""

    SELF = "self"
    CROSS = "cross"
    JOINT = "joint"


class MaskKind(Word):
    """What an attention mask asks of a kernel, from the least to the most demanding."""

    NONE = "none"
    KEY_PADDING = "key_padding"  # bool, the same for every query and head: [B, 1, 1, Sk]
    BOOL = "bool"  # bool, arbitrary
    ADDITIVE = "additive"  # float, added to the scores


class Fidelity(Word):
    """How an implementation's result relates to the oracle's."""

    EXACT = "exact"  # equal up to rounding
    LOSSY = "lossy"  # quantised: approximately equal everywhere
    SPARSE = "sparse"  # exact over a chosen subset of the keys


class Source(Word):
    """Which rule decided a selection, strongest first."""

    FORCE = "force"
    ROLE = "role"
    COMPONENT = "component"
    FLAG = "flag"
    AUTO = "auto"


class ProbeLevel(Word):
    """How deep a probe looks, cheapest first."""

    STATIC = "static"  # files and metadata; torch is not imported
    IMPORT = "import"  # each package imported in a subprocess with a time limit
    LIVE = "live"  # a real kernel on small tensors against the oracle


class PackageState(Word):
    """What is known of an installed package, from worst to best."""

    ABSENT = "absent"
    FOREIGN = "foreign"  # another project under the same import name, such as PyPI's `aiter`
    BROKEN = "broken"  # importing it raised, exited, or did not finish
    INSTALLED = "installed"  # seen by the static probe only
    IMPORTS = "imports"  # the import probe succeeded


DType = Literal["float64", "float32", "float16", "bfloat16"]
OnSubstitution = Literal["warn", "error"]

# alias -> (backend, implementation). A bare backend name requests no implementation.
ALIASES: Final[dict[str, tuple[str, str | None]]] = {
    "fa2": (Backend.FA.value, "fa2"),
    "fa3": (Backend.FA.value, "fa3"),
    "fa4": (Backend.FA.value, "fa4"),
    "flash_attn": (Backend.FA.value, None),
    "sdpa": (Backend.TORCH_SDPA.value, None),
    "sage3": (Backend.SAGE_ATTN_3.value, None),
    "sta": (Backend.SLIDING_TILE_ATTN.value, None),
    "vmoba": (Backend.VMOBA_ATTN.value, None),
    "vsa": (Backend.VIDEO_SPARSE_ATTN.value, None),
}

ENTRY_POINT_GROUP: Final = "polyattn.implementations"
