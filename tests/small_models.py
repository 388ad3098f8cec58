"""Denoisers and VAEs of the other families, small and random, called directly: one each.

`tests/small_pipelines.py` runs whole pipelines; here a model alone gets the inputs that its
pipeline would give it. Sizes differ along every axis, so that a mixed-up grid shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Inputs = dict[str, Any]


@dataclass(frozen=True)
class Denoiser:
    """A family's transformer: its class in diffusers, a small configuration, its inputs."""

    family: str
    kind: str
    config: dict[str, Any]
    inputs: Callable[[], Inputs]

    def build(self) -> Any:
        import diffusers

        torch.manual_seed(0)
        model = getattr(diffusers, self.kind)(**self.config).eval()
        # Some outputs are scaled by parameters that start at zero: then nothing would be compared.
        with torch.no_grad():
            for parameter in model.parameters():
                if not parameter.any():
                    parameter.normal_(std=0.1)
        return model

    def run(self, model: Any) -> Tensor:
        with torch.no_grad():
            out = model(**self.inputs(), return_dict=False)
        while not isinstance(out, Tensor):
            out = out[0]
        return out


def _random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _steps() -> Tensor:
    return torch.tensor([500])


def _mask(valid: int, length: int) -> Tensor:
    mask = torch.zeros(1, length, dtype=torch.long)
    mask[:, :valid] = 1
    return mask


def _ids(frames: int, height: int, width: int, columns: int = 3) -> Tensor:
    """Positions of every token, (frame, row, column), and zeros."""
    axes = [torch.arange(n) for n in (frames, height, width)]
    ids = torch.cartesian_prod(*axes).float()
    return torch.cat([ids, torch.zeros(len(ids), columns - 3)], dim=1)


def _wan(**more: Any) -> dict[str, Any]:
    return dict(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=4,
        out_channels=4,
        text_dim=16,
        freq_dim=32,
        ffn_dim=32,
        num_layers=2,
        rope_max_seq_len=32,
        **more,
    )


def _wan_inputs(channels: int = 4, words: int = 7) -> Inputs:
    return {
        "hidden_states": _random(1, channels, 3, 4, 6),
        "timestep": _steps(),
        "encoder_hidden_states": _random(1, words, 16),
    }


DENOISERS = (
    Denoiser(
        "Wan I2V",
        "WanTransformer3DModel",
        # Wan tells the image's tokens from the 512 words by their number.
        _wan(image_dim=8, added_kv_proj_dim=24),
        lambda: {**_wan_inputs(words=512), "encoder_hidden_states_image": _random(1, 5, 8)},
    ),
    Denoiser(
        "Wan VACE",
        "WanVACETransformer3DModel",
        _wan(vace_layers=[0, 1], vace_in_channels=6),
        lambda: {
            **_wan_inputs(),
            "control_hidden_states": _random(1, 6, 3, 4, 6),
            "control_hidden_states_scale": torch.ones(2),
        },
    ),
    Denoiser(
        "SkyReels V2",
        "SkyReelsV2Transformer3DModel",
        _wan(),
        _wan_inputs,
    ),
    Denoiser(
        "HunyuanVideo",
        "HunyuanVideoTransformer3DModel",
        {
            "in_channels": 4,
            "out_channels": 4,
            "num_attention_heads": 2,
            "attention_head_dim": 12,
            "num_layers": 1,
            "num_single_layers": 1,
            "num_refiner_layers": 1,
            "patch_size": 2,
            "patch_size_t": 1,
            "text_embed_dim": 16,
            "pooled_projection_dim": 8,
            "rope_axes_dim": (4, 4, 4),
        },
        lambda: {
            "hidden_states": _random(1, 4, 3, 4, 8),
            "timestep": _steps(),
            "encoder_hidden_states": _random(1, 7, 16),
            "encoder_attention_mask": _mask(5, 7),
            "pooled_projections": _random(1, 8),
            "guidance": torch.tensor([6000.0]),
        },
    ),
    Denoiser(
        "HunyuanVideo 1.5",
        "HunyuanVideo15Transformer3DModel",
        {
            "in_channels": 4,
            "out_channels": 4,
            "num_attention_heads": 2,
            "attention_head_dim": 12,
            "num_layers": 2,
            "num_refiner_layers": 1,
            "text_embed_dim": 16,
            "text_embed_2_dim": 8,
            "image_embed_dim": 12,
            "rope_axes_dim": (4, 4, 4),
            "target_size": 16,
            "task_type": "t2v",
        },
        lambda: {
            "hidden_states": _random(1, 4, 3, 2, 4),
            "timestep": torch.tensor([500.0]),
            "encoder_hidden_states": _random(1, 7, 16),
            "encoder_attention_mask": _mask(5, 7).float(),
            "encoder_hidden_states_2": _random(1, 4, 8),
            "encoder_attention_mask_2": _mask(3, 4).float(),
            "image_embeds": torch.zeros(1, 3, 12),
        },
    ),
    Denoiser(
        "HunyuanImage",
        "HunyuanImageTransformer2DModel",
        {
            "in_channels": 4,
            "out_channels": 4,
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "num_layers": 1,
            "num_single_layers": 1,
            "num_refiner_layers": 1,
            "text_embed_dim": 16,
            "text_embed_2_dim": 8,
            "rope_axes_dim": (4, 4),
        },
        lambda: {
            "hidden_states": _random(1, 4, 4, 6),
            "timestep": torch.tensor([500.0]),
            "encoder_hidden_states": _random(1, 7, 16),
            "encoder_attention_mask": _mask(5, 7).float(),
            "encoder_hidden_states_2": _random(1, 4, 8),
            "encoder_attention_mask_2": _mask(3, 4).float(),
        },
    ),
    Denoiser(
        "LTX",
        "LTXVideoTransformer3DModel",
        {
            "in_channels": 8,
            "out_channels": 8,
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "cross_attention_dim": 16,
            "num_layers": 2,
            "caption_channels": 12,
        },
        lambda: {
            "hidden_states": _random(1, 24, 8),
            "timestep": _steps(),
            "encoder_hidden_states": _random(1, 7, 12),
            "encoder_attention_mask": _mask(5, 7),
            "num_frames": 2,
            "height": 3,
            "width": 4,
        },
    ),
    Denoiser(
        "LTX 2",
        "LTX2VideoTransformer3DModel",
        {
            "in_channels": 4,
            "out_channels": 4,
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "cross_attention_dim": 16,
            "audio_in_channels": 4,
            "audio_out_channels": 4,
            "audio_num_attention_heads": 2,
            "audio_attention_head_dim": 4,
            "audio_cross_attention_dim": 8,
            "num_layers": 2,
            "caption_channels": 12,
            "rope_double_precision": False,
        },
        lambda: {
            "hidden_states": _random(1, 24, 4),
            "audio_hidden_states": _random(1, 9, 4),
            "timestep": _steps(),
            "encoder_hidden_states": _random(1, 7, 12),
            "audio_encoder_hidden_states": _random(1, 7, 12, seed=2),
            "num_frames": 2,
            "height": 3,
            "width": 4,
            "audio_num_frames": 9,
        },
    ),
    Denoiser(
        "CogVideoX",
        "CogVideoXTransformer3DModel",
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "in_channels": 4,
            "out_channels": 4,
            "time_embed_dim": 2,
            "text_embed_dim": 8,
            "num_layers": 2,
            "sample_width": 6,
            "sample_height": 4,
            "sample_frames": 9,
            "max_text_seq_length": 7,
        },
        lambda: {
            "hidden_states": _random(1, 3, 4, 4, 6),
            "timestep": _steps(),
            "encoder_hidden_states": _random(1, 7, 8),
        },
    ),
    Denoiser(
        "Mochi",
        "MochiTransformer3DModel",
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "num_layers": 2,
            "pooled_projection_dim": 16,
            "in_channels": 4,
            "text_embed_dim": 16,
            "time_embed_dim": 4,
            "max_sequence_length": 7,
        },
        lambda: {
            "hidden_states": _random(1, 4, 3, 4, 6),
            "timestep": _steps(),
            "encoder_hidden_states": _random(1, 7, 16),
            "encoder_attention_mask": _mask(5, 7).bool(),
        },
    ),
    Denoiser(
        "Flux 2",
        "Flux2Transformer2DModel",
        {
            "in_channels": 4,
            "num_layers": 1,
            "num_single_layers": 1,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 8,
            "timestep_guidance_channels": 32,
            "axes_dims_rope": (4, 4, 4, 4),
        },
        lambda: {
            "hidden_states": _random(1, 12, 4),
            "encoder_hidden_states": _random(1, 7, 8),
            "timestep": torch.tensor([0.5]),
            "img_ids": _ids(1, 3, 4, columns=4)[None],
            "txt_ids": torch.zeros(1, 7, 4),
            "guidance": torch.tensor([3.5]),
        },
    ),
    Denoiser(
        "Chroma",
        "ChromaTransformer2DModel",
        {
            "in_channels": 4,
            "num_layers": 1,
            "num_single_layers": 1,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 8,
            "axes_dims_rope": (4, 4, 8),
            "approximator_num_channels": 8,
            "approximator_hidden_dim": 16,
            "approximator_layers": 1,
        },
        lambda: {
            "hidden_states": _random(1, 12, 4),
            "encoder_hidden_states": _random(1, 7, 8),
            "timestep": torch.tensor([0.5]),
            "img_ids": _ids(1, 3, 4),
            "txt_ids": torch.zeros(7, 3),
            "attention_mask": torch.ones(1, 19, dtype=torch.bool).index_fill_(
                1, torch.tensor([5, 6]), False
            ),
        },
    ),
    Denoiser(
        "QwenImage",
        "QwenImageTransformer2DModel",
        {
            "in_channels": 16,
            "out_channels": 4,
            "num_layers": 2,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 8,
            "axes_dims_rope": (8, 4, 4),
        },
        lambda: {
            "hidden_states": _random(1, 12, 16),
            "encoder_hidden_states": _random(1, 7, 8),
            "encoder_hidden_states_mask": _mask(5, 7),
            "timestep": torch.tensor([0.5]),
            "img_shapes": [[(1, 3, 4)]],
        },
    ),
    Denoiser(
        "Sana",
        "SanaTransformer2DModel",
        {
            "in_channels": 4,
            "out_channels": 4,
            "num_attention_heads": 2,
            "attention_head_dim": 4,
            "num_layers": 2,
            "num_cross_attention_heads": 2,
            "cross_attention_head_dim": 4,
            "cross_attention_dim": 8,
            "caption_channels": 8,
            "sample_size": 8,
        },
        lambda: {
            "hidden_states": _random(1, 4, 4, 6),
            "timestep": _steps(),
            "encoder_hidden_states": _random(1, 7, 8),
            "encoder_attention_mask": _mask(5, 7),
        },
    ),
    Denoiser(
        "Sana Video",
        "SanaVideoTransformer3DModel",
        {
            "in_channels": 4,
            "out_channels": 4,
            "num_attention_heads": 2,
            "attention_head_dim": 12,
            "num_layers": 2,
            "num_cross_attention_heads": 2,
            "cross_attention_head_dim": 12,
            "cross_attention_dim": 24,
            "caption_channels": 8,
            "sample_size": 8,
            "rope_max_seq_len": 32,
        },
        lambda: {
            "hidden_states": _random(1, 4, 3, 4, 6),
            "timestep": _steps(),
            "encoder_hidden_states": _random(1, 7, 8),
            "encoder_attention_mask": _mask(5, 7),
        },
    ),
    Denoiser(
        "Z-Image",
        "ZImageTransformer2DModel",
        {
            "in_channels": 4,
            "dim": 32,
            "n_layers": 2,
            "n_refiner_layers": 1,
            "n_heads": 2,
            "n_kv_heads": 2,
            "cap_feat_dim": 8,
            "axes_dims": [8, 4, 4],
            "axes_lens": [128, 32, 32],
        },
        # Z-Image pads both streams to multiples of 32 tokens.
        lambda: {
            "x": [_random(4, 1, 8, 16)],
            "t": torch.tensor([0.5]),
            "cap_feats": [_random(7, 8)],
        },
    ),
    Denoiser(
        "Lumina 2",
        "Lumina2Transformer2DModel",
        {
            "sample_size": 8,
            "in_channels": 4,
            "hidden_size": 32,
            "num_layers": 2,
            "num_refiner_layers": 1,
            "num_attention_heads": 4,
            "num_kv_heads": 2,
            "multiple_of": 2,
            "axes_dim_rope": (4, 2, 2),
            "axes_lens": (32, 32, 32),
            "cap_feat_dim": 8,
        },
        lambda: {
            "hidden_states": _random(1, 4, 6, 8),
            "timestep": torch.tensor([0.5]),
            "encoder_hidden_states": _random(1, 7, 8),
            "encoder_attention_mask": _mask(5, 7).bool(),
        },
    ),
    Denoiser(
        "HiDream",
        "HiDreamImageTransformer2DModel",
        {
            "patch_size": 2,
            "in_channels": 4,
            "out_channels": 4,
            "num_layers": 1,
            "num_single_layers": 1,
            "attention_head_dim": 8,
            "num_attention_heads": 2,
            "caption_channels": [8, 12],
            "text_emb_dim": 16,
            "axes_dims_rope": (4, 2, 2),
            "max_resolution": (8, 8),
            "llama_layers": [0, 0],
            "force_inference_output": True,
        },
        lambda: {
            "hidden_states": _random(1, 4, 8, 8),
            "timesteps": _steps(),
            "encoder_hidden_states_t5": _random(1, 4, 8),
            "encoder_hidden_states_llama3": _random(1, 1, 3, 12),
            "pooled_embeds": _random(1, 16),
        },
    ),
    Denoiser(
        "Kandinsky 5",
        "Kandinsky5Transformer3DModel",
        {
            "in_visual_dim": 4,
            "in_text_dim": 8,
            "in_text_dim2": 8,
            "time_dim": 16,
            "out_visual_dim": 4,
            "model_dim": 32,
            "ff_dim": 32,
            "num_text_blocks": 1,
            "num_visual_blocks": 2,
            "axes_dims": (4, 4, 8),
        },
        lambda: {
            "hidden_states": _random(1, 3, 4, 6, 4),
            "encoder_hidden_states": _random(1, 7, 8),
            "timestep": torch.tensor([500.0]),
            "pooled_projections": _random(1, 8),
            "visual_rope_pos": tuple(torch.arange(n) for n in (3, 2, 3)),
            "text_rope_pos": torch.arange(7),
        },
    ),
    Denoiser(
        "Cosmos",
        "CosmosTransformer3DModel",
        {
            "in_channels": 4,
            "out_channels": 4,
            "num_attention_heads": 2,
            "attention_head_dim": 16,
            "num_layers": 2,
            "mlp_ratio": 2.0,
            "text_embed_dim": 8,
            "adaln_lora_dim": 4,
            "max_size": (4, 16, 16),
            # The mask is resized by torchvision, which nothing else here needs.
            "concat_padding_mask": False,
        },
        lambda: {
            "hidden_states": _random(1, 4, 3, 4, 6),
            "timestep": torch.tensor([0.5]),
            "encoder_hidden_states": _random(1, 7, 8),
            "fps": 24,
        },
    ),
    Denoiser(
        "PixArt",
        "PixArtTransformer2DModel",
        {
            "num_attention_heads": 2,
            "attention_head_dim": 8,
            "in_channels": 4,
            "num_layers": 2,
            "norm_num_groups": 1,
            "cross_attention_dim": 16,
            "sample_size": 8,
            "caption_channels": 8,
            "use_additional_conditions": False,
        },
        lambda: {
            "hidden_states": _random(1, 4, 4, 6),
            "timestep": _steps(),
            "encoder_hidden_states": _random(1, 7, 8),
            "encoder_attention_mask": _mask(5, 7),
            "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
        },
    ),
    Denoiser(
        "CogView 4",
        "CogView4Transformer2DModel",
        {
            "in_channels": 4,
            "out_channels": 4,
            "num_layers": 2,
            "attention_head_dim": 8,
            "num_attention_heads": 2,
            "text_embed_dim": 8,
            "time_embed_dim": 8,
            "condition_dim": 4,
            "rope_axes_dim": (16, 16),
        },
        lambda: {
            "hidden_states": _random(1, 4, 4, 6),
            "encoder_hidden_states": _random(1, 7, 8),
            "timestep": _steps(),
            "original_size": torch.tensor([[32.0, 48.0]]),
            "target_size": torch.tensor([[32.0, 48.0]]),
            "crop_coords": torch.tensor([[0.0, 0.0]]),
        },
    ),
    Denoiser(
        "AuraFlow",
        "AuraFlowTransformer2DModel",
        {
            "sample_size": 8,
            "in_channels": 4,
            "num_mmdit_layers": 1,
            "num_single_dit_layers": 1,
            "attention_head_dim": 8,
            "num_attention_heads": 2,
            "joint_attention_dim": 8,
            "caption_projection_dim": 16,
            "out_channels": 4,
            "pos_embed_max_size": 64,
        },
        lambda: {
            "hidden_states": _random(1, 4, 4, 6),
            "encoder_hidden_states": _random(1, 7, 8),
            "timestep": torch.tensor([0.5]),
        },
    ),
)
