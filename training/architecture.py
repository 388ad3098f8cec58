"""The demo's models: diffusers' and transformers' own classes, small."""

from __future__ import annotations

import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanTransformer3DModel
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, UMT5Config, UMT5EncoderModel

from training.captions import vocabulary
from training.latents import CHANNELS

TEXT_WIDTH = 64
FLOW_SHIFT = 3.0
SPECIAL_TOKENS = ("<pad>", "</s>", "<unk>")


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One word, one token; closed by </s>, as T5 does."""
    words = {word: i for i, word in enumerate([*SPECIAL_TOKENS, *vocabulary()])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", words["</s>"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=512,
    )


def build_text_encoder() -> UMT5EncoderModel:
    size = len(SPECIAL_TOKENS) + len(vocabulary())
    return UMT5EncoderModel(
        UMT5Config(
            vocab_size=(size + 15) // 16 * 16,
            d_model=TEXT_WIDTH,
            d_kv=16,
            num_heads=4,
            d_ff=128,
            num_layers=2,
            dropout_rate=0.0,
            pad_token_id=0,
            eos_token_id=1,
            decoder_start_token_id=0,
        )
    )


def build_transformer(heads: int = 2, layers: int = 5, ffn: int = 384) -> WanTransformer3DModel:
    """head_dim 64, so that the kernels of real models serve it too."""
    model = WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=heads,
        attention_head_dim=64,
        in_channels=CHANNELS,
        out_channels=CHANNELS,
        text_dim=TEXT_WIDTH,
        freq_dim=128,
        ffn_dim=ffn,
        num_layers=layers,
        cross_attn_norm=True,
        rope_max_seq_len=128,
    )
    torch.nn.init.zeros_(model.proj_out.weight)
    torch.nn.init.zeros_(model.proj_out.bias)
    for block in model.blocks:
        # Sharper at the start, against the dilution by hundreds of equal pads (see pads.py).
        torch.nn.init.constant_(block.attn2.norm_k.weight, 1.5)
    return model


def build_vae() -> AutoencoderKLWan:
    """4x in time, 4x in space. Width doubles per level, as is_residual=False demands."""
    vae = AutoencoderKLWan(
        base_dim=8,
        decoder_base_dim=8,
        z_dim=CHANNELS,
        dim_mult=[1, 2, 4],
        num_res_blocks=1,
        temperal_downsample=[True, True],
        is_residual=False,
        latents_mean=[0.0] * CHANNELS,
        latents_std=[1.0] * CHANNELS,
        scale_factor_temporal=4,
        scale_factor_spatial=4,
    )
    for half in (vae.encoder, vae.decoder):
        for attention in half.mid_block.attentions:
            # Attention over a whole frame depends on its size: the identity does not.
            torch.nn.init.zeros_(attention.proj.weight)
            torch.nn.init.zeros_(attention.proj.bias)
            attention.requires_grad_(False)
    return vae


def build_scheduler() -> UniPCMultistepScheduler:
    return UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=FLOW_SHIFT
    )
