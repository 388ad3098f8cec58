"""Real diffusers pipelines, small and random, built without a hub: one per family.

Tokenizers are left out; `run` feeds token ids to the text encoders itself, so that every model of
the pipeline attends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Family:
    """How to build a family's pipeline and how to generate with it."""

    name: str
    build: Callable[[], Any]
    run: Callable[[Any], Tensor]


def _ids(length: int = 12) -> Tensor:
    return torch.arange(2, 2 + length)[None]


def _clip(projection: bool) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    config = CLIPTextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=37,
        num_hidden_layers=3,
        num_attention_heads=4,
        projection_dim=32,
        bos_token_id=0,
        eos_token_id=2,
    )
    kind = CLIPTextModelWithProjection if projection else CLIPTextModel
    return kind(config).eval()


def _t5() -> Any:
    from transformers import T5Config, T5EncoderModel

    config = T5Config(vocab_size=64, d_model=32, d_kv=8, num_heads=4, d_ff=64, num_layers=2)
    return T5EncoderModel(config).eval()


def _vae(latent_channels: int) -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        sample_size=32,
        in_channels=3,
        out_channels=3,
        block_out_channels=(8, 16),
        layers_per_block=1,
        latent_channels=latent_channels,
        norm_num_groups=4,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        use_quant_conv=False,
        use_post_quant_conv=False,
        shift_factor=0.1,
        scaling_factor=1.5,
    ).eval()


def build_wan(layers: int = 2, heads: int = 2, head_dim: int = 12) -> Any:
    """WanPipeline with UMT5, a token grid of 3x2x3 at the size that `run_wan` asks for."""
    from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanTransformer3DModel
    from diffusers.pipelines.wan.pipeline_wan import WanPipeline
    from transformers import UMT5Config, UMT5EncoderModel

    torch.manual_seed(0)
    transformer = WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=heads,
        attention_head_dim=head_dim,
        in_channels=16,
        out_channels=16,
        text_dim=32,
        freq_dim=256,
        ffn_dim=32,
        num_layers=layers,
        cross_attn_norm=True,
        qk_norm="rms_norm_across_heads",
        rope_max_seq_len=32,
    )
    vae = AutoencoderKLWan(
        base_dim=3,
        z_dim=16,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
    )
    config = UMT5Config(vocab_size=64, d_model=32, d_kv=8, num_heads=4, d_ff=64, num_layers=2)
    pipeline = WanPipeline(
        tokenizer=None,
        text_encoder=UMT5EncoderModel(config).eval(),
        transformer=transformer.eval(),
        vae=vae.eval(),
        scheduler=UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
        ),
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def run_wan(pipeline: Any) -> Tensor:
    """Two steps with guidance: [batch, frames, 3, 32, 48]."""
    mask = torch.ones_like(_ids())
    mask[:, 8:] = 0
    with torch.no_grad():
        embeds = pipeline.text_encoder(_ids(), attention_mask=mask).last_hidden_state
    return pipeline(
        prompt_embeds=embeds,
        negative_prompt_embeds=embeds * 0.5,
        height=32,
        width=48,
        num_frames=9,
        num_inference_steps=2,
        generator=torch.Generator().manual_seed(0),
        output_type="pt",
    ).frames


def build_flux() -> Any:
    """FluxPipeline with CLIP and T5: two double-stream and two single-stream blocks."""
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxTransformer2DModel
    from diffusers.pipelines.flux.pipeline_flux import FluxPipeline

    torch.manual_seed(0)
    transformer = FluxTransformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=2,
        num_single_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
    )
    pipeline = FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=_vae(4),
        text_encoder=_clip(projection=False),
        tokenizer=None,
        text_encoder_2=_t5(),
        tokenizer_2=None,
        transformer=transformer.eval(),
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def run_flux(pipeline: Any) -> Tensor:
    """Two steps at 32x48: a token grid of 1x8x12 after nine words."""
    with torch.no_grad():
        pooled = pipeline.text_encoder(_ids()).pooler_output
        embeds = pipeline.text_encoder_2(_ids(9)).last_hidden_state
    return pipeline(
        prompt_embeds=embeds,
        pooled_prompt_embeds=pooled,
        height=32,
        width=48,
        num_inference_steps=2,
        generator=torch.Generator().manual_seed(0),
        output_type="pt",
    ).images


def build_sd3() -> Any:
    """StableDiffusion3Pipeline with two CLIPs and T5, one dual-attention block."""
    from diffusers import FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel
    from diffusers.pipelines.stable_diffusion_3.pipeline_stable_diffusion_3 import (
        StableDiffusion3Pipeline,
    )

    torch.manual_seed(0)
    transformer = SD3Transformer2DModel(
        sample_size=32,
        patch_size=2,
        in_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=4,
        joint_attention_dim=32,
        caption_projection_dim=32,
        pooled_projection_dim=64,
        out_channels=4,
        dual_attention_layers=(0,),
        qk_norm="rms_norm",
    )
    pipeline = StableDiffusion3Pipeline(
        transformer=transformer.eval(),
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=_vae(4),
        text_encoder=_clip(projection=True),
        tokenizer=None,
        text_encoder_2=_clip(projection=True),
        tokenizer_2=None,
        text_encoder_3=_t5(),
        tokenizer_3=None,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def run_sd3(pipeline: Any) -> Tensor:
    """Two steps with guidance at 32x64: a token grid of 1x8x16 before nine words."""
    with torch.no_grad():
        first = pipeline.text_encoder(_ids()).text_embeds
        second = pipeline.text_encoder_2(_ids()).text_embeds
        embeds = pipeline.text_encoder_3(_ids(9)).last_hidden_state
    pooled = torch.cat([first, second], dim=-1)
    return pipeline(
        prompt_embeds=embeds,
        negative_prompt_embeds=embeds * 0.5,
        pooled_prompt_embeds=pooled,
        negative_pooled_prompt_embeds=pooled * 0.5,
        height=32,
        width=64,
        num_inference_steps=2,
        generator=torch.Generator().manual_seed(0),
        output_type="pt",
    ).images


def build_sdxl() -> Any:
    """StableDiffusionXLPipeline with two CLIPs: attention at the second level of the U-Net."""
    from diffusers import EulerDiscreteScheduler, UNet2DConditionModel
    from diffusers.pipelines.stable_diffusion_xl.pipeline_stable_diffusion_xl import (
        StableDiffusionXLPipeline,
    )

    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        block_out_channels=(32, 64),
        layers_per_block=1,
        sample_size=32,
        in_channels=4,
        out_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=(2, 4),
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        transformer_layers_per_block=(1, 1),
        projection_class_embeddings_input_dim=80,
        cross_attention_dim=64,
        norm_num_groups=8,
    )
    pipeline = StableDiffusionXLPipeline(
        vae=_vae(4),
        text_encoder=_clip(projection=False),
        text_encoder_2=_clip(projection=True),
        tokenizer=None,
        tokenizer_2=None,
        unet=unet.eval(),
        scheduler=EulerDiscreteScheduler(),
        add_watermarker=False,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def run_sdxl(pipeline: Any) -> Tensor:
    """Two steps with guidance at 32x48: latents 1x16x24, attention on 1x8x12."""
    with torch.no_grad():
        first = pipeline.text_encoder(_ids()).last_hidden_state
        second = pipeline.text_encoder_2(_ids())
    embeds = torch.cat([first, second.last_hidden_state], dim=-1)
    pooled = second.text_embeds
    return pipeline(
        prompt_embeds=embeds,
        negative_prompt_embeds=embeds * 0.5,
        pooled_prompt_embeds=pooled,
        negative_pooled_prompt_embeds=pooled * 0.5,
        height=32,
        width=48,
        num_inference_steps=2,
        generator=torch.Generator().manual_seed(0),
        output_type="pt",
    ).images


FAMILIES = (
    Family("wan", build_wan, run_wan),
    Family("flux", build_flux, run_flux),
    Family("sd3", build_sd3, run_sd3),
    Family("sdxl", build_sdxl, run_sdxl),
)
