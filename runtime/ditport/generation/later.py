"""sglang options that are understood here and not served yet. Never accepted and ignored.

A value that asks for nothing (`--num-gpus 1`) passes; any other is refused with a reason.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from ditport.errors import NotInThisVersion
from ditport.options import anything, flag, nonempty, real, setting, whole

PARALLEL: Final = "More than one device needs sequence parallelism, which is not in this version."
SERVER: Final = "It belongs to a server, and `ditport generate` starts none."
POST: Final = "Post-processing of frames is not in this version."
QUANTISED: Final = "Quantised weights are not in this version."
CACHE: Final = "Caching between steps is not in this version."


def later(name: str, parse: Any, reason: str, harmless: Any = None, **option: Any) -> Any:
    """A field whose option is refused unless its value asks for nothing."""
    field = setting(name, default=None, parse=parse, hidden=True, help=reason, **option)
    field.metadata = {**field.metadata, "reason": reason, "harmless": harmless, "flag": name}
    return field


def number(name: str, reason: str, harmless: int = 1) -> Any:
    """A count of which `harmless` asks for nothing."""
    return later(name, whole(0), reason, harmless)


def switch(name: str, reason: str) -> Any:
    """A switch; false asks for nothing."""
    return later(name, flag, reason, False, switch=True)


def word(name: str, reason: str, *, many: bool = False) -> Any:
    """Text of any kind."""
    return later(name, nonempty, reason, many=many)


@dataclass(frozen=True)
class LaterSettings:
    """Options of later versions."""

    num_gpus: int | None = number("--num-gpus", PARALLEL)
    tp_size: int | None = number("--tp-size", PARALLEL)
    sp_degree: int | None = number("--sp-degree", PARALLEL)
    sp_size: int | None = number("--sp-size", PARALLEL)
    ulysses_degree: int | None = number("--ulysses-degree", PARALLEL)
    ring_degree: int | None = number("--ring-degree", PARALLEL)
    dp_size: int | None = number("--dp-size", PARALLEL)
    cfg_parallel_size: int | None = number("--cfg-parallel-size", PARALLEL)
    enable_cfg_parallel: bool | None = switch("--enable-cfg-parallel", PARALLEL)
    hsdp_replicate_dim: int | None = number("--hsdp-replicate-dim", PARALLEL)
    hsdp_shard_dim: int | None = number("--hsdp-shard-dim", PARALLEL)
    use_fsdp_inference: bool | None = switch("--use-fsdp-inference", PARALLEL)
    vae_sp: bool | None = switch("--vae-sp", PARALLEL)
    host: str | None = word("--host", SERVER)
    port: str | None = word("--port", SERVER)
    webui: bool | None = switch("--webui", SERVER)
    webui_port: str | None = word("--webui-port", SERVER)
    warmup: bool | None = switch("--warmup", SERVER)
    warmup_resolutions: tuple[str, ...] | None = word("--warmup-resolutions", SERVER, many=True)
    enable_frame_interpolation: bool | None = switch("--enable-frame-interpolation", POST)
    frame_interpolation_exp: str | None = word("--frame-interpolation-exp", POST)
    frame_interpolation_scale: str | None = word("--frame-interpolation-scale", POST)
    frame_interpolation_model_path: str | None = word("--frame-interpolation-model-path", POST)
    enable_upscaling: bool | None = switch("--enable-upscaling", POST)
    upscaling_scale: str | None = word("--upscaling-scale", POST)
    upscaling_model_path: str | None = word("--upscaling-model-path", POST)
    quantization: str | None = word("--quantization", QUANTISED)
    quantization_ignored_layers: tuple[str, ...] | None = word(
        "--quantization-ignored-layers", QUANTISED, many=True
    )
    transformer_weights_path: str | None = word("--transformer-weights-path", QUANTISED)
    cache_dit_config: str | None = word("--cache-dit-config", CACHE)
    enable_teacache: bool | None = switch("--enable-teacache", CACHE)
    return_frames: bool | None = switch(
        "--return-frames", "A command has nothing to return frames to; they are in the file."
    )
    boundary_ratio: float | None = later(
        "--boundary-ratio",
        real(0, 1),
        "The boundary between two denoisers is the model's own in this version.",
    )
    lora_merge_mode: str | None = word(
        "--lora-merge-mode",
        "LoRAs stay unmerged in this version.",
    )
    vae_config: object = later(
        "--vae-config", anything, "A VAE is configured by its model folder in this version.", {}
    )
    profile: bool | None = switch("--profile", "Profiling is not in this version.")
    perf_dump_path: str | None = word(
        "--perf-dump-path", "Seconds per stage are in the result of --json."
    )


def refuse_later(settings: LaterSettings) -> None:
    """Raise NotInThisVersion for the first option that asks for something."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if value is None or value == field.metadata["harmless"]:
            continue
        shown = "" if value is True else f" {value}"
        raise NotInThisVersion(
            f"{field.metadata['flag']}{shown} cannot be served.",
            field.metadata["reason"],
            "Leave the option out.",
        )
