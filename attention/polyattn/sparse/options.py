"""The options of the three sparse backends: names, defaults and checks, each in one place.

Nothing here imports torch, so that a wrong option is refused before a model is loaded.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar

from polyattn.call import AttentionCall
from polyattn.errors import InvalidOptions

Options = TypeVar("Options")
Triple = tuple[int, int, int]


def _option(default: Any, check: Callable[[object], object]) -> Any:
    return dataclasses.field(default=default, metadata={"check": check})


def names(options: type) -> tuple[str, ...]:
    """The option names of a dataclass below."""
    return tuple(field.name for field in dataclasses.fields(options))


def read(options: type[Options], given: Mapping[str, object]) -> Options:
    """An options object from what was given; names of other backends are passed over.

    Raises InvalidOptions naming the option and what it takes.
    """
    values = {}
    for field in dataclasses.fields(options):  # type: ignore[arg-type]  # all are dataclasses
        if field.name not in given:
            continue
        try:
            values[field.name] = field.metadata["check"](given[field.name])
        except ValueError as error:
            backend = options.backend  # type: ignore[attr-defined]
            raise InvalidOptions(
                f"The option {field.name} of {backend} {error}, not {given[field.name]!r}."
            ) from None
    return options(**values)


def _whole(minimum: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise ValueError(f"takes a whole number of at least {minimum}")
        return value

    return check


def _fraction(value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError("takes a number from 0 to 1")
    return float(value)


def _sizes(count: int) -> Callable[[object], tuple[int, ...]]:
    """Positive whole numbers: a list, or `3x4x5`, since KEY=VALUE cannot hold a list."""
    example = "x".join("345"[:count])

    def check(value: object) -> tuple[int, ...]:
        if isinstance(value, str) and re.fullmatch(r"\d+(x\d+)*", value):
            value = tuple(map(int, value.split("x")))
        if not isinstance(value, (list, tuple)) or len(value) != count:
            raise ValueError(f"takes {count} whole numbers, as a list or as {example}")
        if any(not isinstance(n, int) or isinstance(n, bool) or n < 1 for n in value):
            raise ValueError(f"takes {count} whole numbers of at least 1")
        return tuple(value)

    return check


def _word(*words: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if value not in words:
            raise ValueError(f"takes {' or '.join(words)}")
        return str(value)

    return check


def _path(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("takes a path")
    return value


def _inference(value: object) -> str:
    if value != "STA_inference":
        raise ValueError("takes STA_inference (`ditport sta search` and `sta tune` do the rest)")
    return "STA_inference"


@dataclass(frozen=True)
class SlidingTileOptions:
    """sliding_tile_attn. Windows are counted in tiles; a mask strategy file gives one per head."""

    backend: ClassVar[str] = "sliding_tile_attn"

    tile_size: tuple[int, int, int] = _option((6, 8, 8), _sizes(3))
    window: tuple[int, int, int] | None = _option(None, _sizes(3))  # every head's; None: WINDOW
    mask_strategy_file_path: str | None = _option(None, _path)
    skip_time_steps: int = _option(0, _whole(0))  # that many first steps attend in full
    sta_mode: str = _option("STA_inference", _inference)

    def __post_init__(self) -> None:
        if self.window is not None and self.mask_strategy_file_path is not None:
            raise InvalidOptions(
                f"{self.backend} takes window or mask_strategy_file_path, not both: "
                "the file holds a window for every step, layer and head."
            )


WINDOW: Final[Triple] = (3, 3, 3)


@dataclass(frozen=True)
class VideoSparseOptions:
    """video_sparse_attn.

    `topk_rule`: of B cubes, "blocks" keeps ceil((1 - sparsity) * B) (FastVideo), "tokens" keeps
    ceil((1 - sparsity) * tokens / 64) (sglang), which is fewer where cubes at borders are ragged.
    `coarse`: whether the attention over cube means is added to the result. Checkpoints that were
    trained so gate it; others ("off") were not, and adding it would change even a dense result.
    """

    backend: ClassVar[str] = "video_sparse_attn"

    sparsity: float = _option(0.0, _fraction)
    topk_rule: str = _option("blocks", _word("blocks", "tokens"))
    coarse: str = _option("off", _word("off", "add"))


@dataclass(frozen=True)
class VMoBAOptions:
    """vmoba_attn. Layers cycle through temporal, spatial and spatio-temporal chunks.

    Defaults are upstream's for Wan2.1 1.3B at 77x480x832 (a token grid of 20x30x52). Chunk sizes
    are in tokens. Steps before `first_full_step` and layers before `first_full_layer` attend in
    full, as upstream's documentation says (its code never does).
    """

    backend: ClassVar[str] = "vmoba_attn"

    temporal_chunk_size: int = _option(2, _whole(1))
    temporal_topk: int = _option(3, _whole(1))
    spatial_chunk_size: tuple[int, int] = _option((3, 4), _sizes(2))
    spatial_topk: int = _option(20, _whole(1))
    st_chunk_size: tuple[int, int, int] = _option((4, 6, 4), _sizes(3))
    st_topk: int = _option(15, _whole(1))
    moba_select_mode: str = _option("threshold", _word("threshold", "topk"))
    moba_threshold: float = _option(0.25, _fraction)
    moba_threshold_type: str = _option(
        "query_head", _word("query_head", "block", "overall", "head_global")
    )
    first_full_layer: int = _option(0, _whole(0))
    first_full_step: int = _option(12, _whole(0))
    temporal_layer: int = _option(1, _whole(0))
    spatial_layer: int = _option(1, _whole(0))
    st_layer: int = _option(1, _whole(0))

    def __post_init__(self) -> None:
        if self.temporal_layer + self.spatial_layer + self.st_layer == 0:
            raise InvalidOptions(
                "vmoba_attn needs a layer of some kind: temporal_layer, spatial_layer and st_layer "
                "are all 0."
            )
        if self.moba_select_mode == "topk" and self.moba_threshold_type == "block":
            raise InvalidOptions(
                "vmoba_attn selects by block only where moba_select_mode is threshold; for topk, "
                "moba_threshold_type is query_head, overall or head_global."
            )


def check_sliding_tile(given: Mapping[str, object]) -> None:
    """Refuse wrong options of sliding_tile_attn, its mask strategy file included."""
    from polyattn.sparse.mask_strategy import load

    options = read(SlidingTileOptions, given)
    if options.mask_strategy_file_path is not None:
        load(options.mask_strategy_file_path)


def check_video_sparse(given: Mapping[str, object]) -> None:
    """Refuse wrong options of video_sparse_attn."""
    read(VideoSparseOptions, given)


def check_vmoba(given: Mapping[str, object]) -> None:
    """Refuse wrong options of vmoba_attn."""
    read(VMoBAOptions, given)


def first_dense_sliding_tile(given: Mapping[str, object]) -> int:
    """How many first steps sliding_tile_attn leaves to a dense kernel."""
    return read(SlidingTileOptions, given).skip_time_steps


def dense_sliding_tile(call: AttentionCall, given: Mapping[str, object]) -> str | None:
    """Why its options make a call dense, or None."""
    if not call.first_steps:
        return None
    steps = read(SlidingTileOptions, given).skip_time_steps
    return f"leaves the first {steps} denoising steps dense (skip_time_steps)"


def first_dense_vmoba(given: Mapping[str, object]) -> int:
    """How many first steps vmoba_attn leaves to a dense kernel."""
    return read(VMoBAOptions, given).first_full_step


def dense_vmoba(call: AttentionCall, given: Mapping[str, object]) -> str | None:
    """Why its options make a call dense, or None."""
    options = read(VMoBAOptions, given)
    if call.first_steps:
        return f"leaves the first {options.first_full_step} denoising steps dense (first_full_step)"
    layer = call.site.layer if call.site is not None else None
    if layer is not None and layer < options.first_full_layer:
        return f"leaves the first {options.first_full_layer} layers dense (first_full_layer)"
    return None
