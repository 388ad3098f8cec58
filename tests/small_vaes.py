"""VAEs of the video and image families, small and random, and a latent for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Vae:
    """A VAE's class in diffusers, a small configuration, the shape of a latent."""

    kind: str
    config: dict[str, Any]
    latent: tuple[int, ...]

    def build(self) -> Any:
        import diffusers

        torch.manual_seed(0)
        model = getattr(diffusers, self.kind)(**self.config).eval()
        # Attention's output is often added times zero at first: then nothing would be compared.
        with torch.no_grad():
            for parameter in model.parameters():
                if not parameter.any():
                    parameter.normal_(std=0.1)
        return model

    def run(self, model: Any) -> Tensor:
        """Decode, then encode what came out."""
        latent = torch.randn(self.latent, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            decoded = model.decode(latent, return_dict=False)[0]
            encoded = model.encode(decoded, return_dict=False)[0]
        again = encoded.mode() if hasattr(encoded, "mode") else encoded[0]
        return torch.cat([decoded.flatten(), again.flatten()])


VAES = (
    Vae(
        "AutoencoderKLWan",
        {
            "base_dim": 3,
            "z_dim": 16,
            "dim_mult": [1, 1, 1, 1],
            "num_res_blocks": 1,
            "temperal_downsample": [False, True, True],
        },
        (1, 16, 2, 2, 3),
    ),
    Vae(
        "AutoencoderKLQwenImage",
        {
            "base_dim": 3,
            "z_dim": 16,
            "dim_mult": [1, 1, 1, 1],
            "num_res_blocks": 1,
            "temperal_downsample": [False, True, True],
        },
        (1, 16, 1, 2, 3),
    ),
    Vae(
        "AutoencoderKLHunyuanVideo",
        {
            "latent_channels": 4,
            "block_out_channels": (8, 8, 8, 8),
            "layers_per_block": 1,
            "norm_num_groups": 4,
        },
        (1, 4, 2, 2, 3),
    ),
    Vae(
        "AutoencoderKLHunyuanVideo15",
        {
            "latent_channels": 4,
            "block_out_channels": (16, 16),
            "layers_per_block": 1,
            "spatial_compression_ratio": 2,
            "temporal_compression_ratio": 2,
        },
        (1, 4, 2, 4, 6),
    ),
    Vae(
        "AutoencoderKLHunyuanImage",
        {
            "in_channels": 3,
            "out_channels": 3,
            "latent_channels": 4,
            "block_out_channels": (32, 32),
            "layers_per_block": 1,
            "spatial_compression_ratio": 2,
            "sample_size": 16,
        },
        (1, 4, 4, 6),
    ),
    Vae(
        "AutoencoderKLHunyuanImageRefiner",
        {
            "latent_channels": 4,
            "block_out_channels": (16, 16),
            "layers_per_block": 1,
            "spatial_compression_ratio": 2,
            "temporal_compression_ratio": 2,
        },
        (1, 4, 2, 4, 6),
    ),
    Vae(
        "AutoencoderKLFlux2",
        {
            "block_out_channels": (8, 8),
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "up_block_types": ("UpDecoderBlock2D",) * 2,
            "layers_per_block": 1,
            "latent_channels": 4,
            "norm_num_groups": 4,
        },
        (1, 4, 4, 6),
    ),
    Vae(
        "AutoencoderKLMochi",
        {
            "encoder_block_out_channels": (32, 32, 32, 32),
            "decoder_block_out_channels": (32, 32, 32, 32),
            "latent_channels": 4,
            "layers_per_block": (1, 1, 1, 1, 1),
        },
        (1, 4, 2, 2, 3),
    ),
    Vae(
        "AutoencoderKLCosmos",
        {
            "latent_channels": 4,
            "encoder_block_out_channels": (8, 8, 8, 8),
            "decode_block_out_channels": (8, 8, 8, 8),
            "attention_resolutions": (8,),
            "resolution": 64,
            "num_layers": 1,
            "latents_mean": None,
            "latents_std": None,
        },
        (1, 4, 2, 2, 3),
    ),
)
