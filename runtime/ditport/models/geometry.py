"""Which sizes a model can take: multiples from its VAE and patch sizes, read from its configs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ditport.models.description import ModelDescription

# (space, time) of VAE classes whose configs need not say it.
VAE_FACTORS: Final[Mapping[str, tuple[int, int | None]]] = {
    "AutoencoderKLWan": (8, 4),
    "AutoencoderKLHunyuanVideo": (8, 4),
    "AutoencoderKLLTXVideo": (32, 8),
    "AutoencoderKLCogVideoX": (8, 4),
    "AutoencoderKLMochi": (8, 6),
    "AutoencoderKLQwenImage": (8, None),
    "AutoencoderDC": (32, None),
}
# Pipelines that pack 2x2 latents into a token beside any patch size in the config.
PACKS_TWO: Final = ("Flux", "QwenImage", "Chroma")
# Pipelines whose transformer's patch size is asked of the user's size as well.
PATCHES: Final = ("Wan", "SkyReels", "StableDiffusion3", "HunyuanVideo", "CogVideoX")


@dataclass(frozen=True)
class Geometry:
    """Sizes must be multiples of `multiple`; frames 1 + a multiple of `stride`."""

    multiple: int = 1
    stride: int | None = None

    def nearest_length(self, pixels: int) -> int:
        """The valid height or width closest to one that is asked."""
        return max(1, (pixels + self.multiple // 2) // self.multiple) * self.multiple

    def nearest_frames(self, frames: int) -> int:
        """The valid number of frames closest to one that is asked."""
        if self.stride is None:
            return frames
        return (frames - 1 + self.stride // 2) // self.stride * self.stride + 1

    def takes(self, pixels: int) -> bool:
        """Whether a height or width is valid."""
        return pixels % self.multiple == 0

    def takes_frames(self, frames: int) -> bool:
        """Whether a number of frames is valid."""
        return self.stride is None or (frames - 1) % self.stride == 0


def geometry(model: ModelDescription) -> Geometry:
    """The model's geometry; where nothing is known, everything is allowed."""
    vae = model.configs.get("vae") or model.configs.get("vqvae") or {}
    space, time = _vae_factors(vae)
    if space is None:
        return Geometry()
    patch = 1
    if model.pipeline.startswith(PACKS_TWO):
        patch = 2
    elif model.pipeline.startswith(PATCHES):
        denoiser = next((model.configs[name] for name in model.denoisers), {})
        patch = _spatial(denoiser.get("patch_size", 1))
    demanded = model.signature.multiple if model.signature else 1
    return Geometry(
        math.lcm(space * patch, demanded), time if model.accepts("num_frames") else None
    )


def _vae_factors(config: Mapping[str, Any]) -> tuple[int | None, int | None]:
    known: tuple[int | None, int | None] = VAE_FACTORS.get(
        str(config.get("_class_name")), (None, None)
    )
    space = config.get("scale_factor_spatial") or config.get("spatial_compression_ratio")
    time = config.get("scale_factor_temporal") or config.get("temporal_compression_ratio")
    channels = config.get("block_out_channels") or config.get("encoder_block_out_channels")
    if not isinstance(space, int):
        space = known[0]
    if space is None and isinstance(channels, list) and channels:
        space = 2 ** (len(channels) - 1)
    return space, time if isinstance(time, int) else known[1]


def _spatial(patch: object) -> int:
    if isinstance(patch, (list, tuple)) and patch:
        patch = patch[-1]
    return patch if isinstance(patch, int) else 1
