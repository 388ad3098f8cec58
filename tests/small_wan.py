"""A WanPipeline folder that generates: random weights, a word-level tokenizer, half a megabyte."""

from __future__ import annotations

from pathlib import Path

WORDS = [
    "<pad>",
    "</s>",
    "<unk>",
    "a",
    "the",
    "on",
    "red",
    "green",
    "blue",
    "circle",
    "square",
    "moving",
    "right",
    "left",
    "black",
    "background",
]


def save_small_wan(folder: Path) -> Path:
    """Build it with a fixed seed and save it."""
    import torch
    from diffusers import (
        AutoencoderKLWan,
        UniPCMultistepScheduler,
        WanPipeline,
        WanTransformer3DModel,
    )
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, UMT5Config, UMT5EncoderModel

    torch.manual_seed(0)
    words = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>")
    )
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    pipeline = WanPipeline(
        tokenizer=PreTrainedTokenizerFast(
            tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
        ),
        text_encoder=UMT5EncoderModel(
            UMT5Config(
                vocab_size=len(WORDS), d_model=32, d_kv=8, num_heads=4, d_ff=64, num_layers=1
            )
        ),
        vae=AutoencoderKLWan(
            base_dim=4,
            decoder_base_dim=4,
            z_dim=4,
            dim_mult=[1, 2, 4],
            num_res_blocks=1,
            temperal_downsample=[True, True],
            is_residual=False,
            latents_mean=[0.0] * 4,
            latents_std=[1.0] * 4,
            scale_factor_temporal=4,
            scale_factor_spatial=4,
        ),
        transformer=WanTransformer3DModel(
            patch_size=(1, 2, 2),
            num_attention_heads=2,
            attention_head_dim=12,
            in_channels=4,
            out_channels=4,
            text_dim=32,
            freq_dim=16,
            ffn_dim=32,
            num_layers=2,
            cross_attn_norm=True,
            rope_max_seq_len=1024,
        ),
        scheduler=UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
        ),
    )
    pipeline.save_pretrained(folder)
    return folder
