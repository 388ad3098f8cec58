"""sglang's documented `generate` command lines parse here, and are served or refused in words.

Each case names the document it stands in (repository sgl-project/sglang). "served" means that
nothing in the words themselves is refused; whether the model is there is another matter.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from ditport.cli.generate import parse
from ditport.errors import NotInThisVersion
from ditport.generation.later import refuse_later

CLI = "docs/diffusion/api/cli.md"
CLI_MDX = "docs_new/docs/sglang-diffusion/api/cli.mdx"
OLD_CLI = "python/sglang/multimodal_gen/docs/cli.md"
README = "python/sglang/multimodal_gen/README.md"
ATTENTION = "docs/diffusion/performance/attention_backends.md"
COOKBOOK = "docs/diffusion/performance/deployment_cookbook.md"
POST = "docs/diffusion/api/post_processing.md"
QUANT = "docs/diffusion/quantization.md"
CACHE = "docs/diffusion/performance/cache/cache_dit.md"
INSTALL = "docs/diffusion/installation.md"
BLOG = "LMSYS blog, SGLang diffusion announcement"

SERVED = [
    (CLI, '--model-path Qwen/Qwen-Image --prompt "A beautiful sunset" --save-output'),
    (
        CLI,
        "--model-path Lightricks/LTX-2.3 --attention-backend fa "
        "--component-attention-backends text_encoder=torch_sdpa",
    ),
    (
        CLI,
        "--model-path M --component-attention-backends.text_encoder torch_sdpa "
        "--component-attention-backends.transformer fa",
    ),
    (
        CLI,
        "--model-path AIDC-AI/Ovis-Image-7B --backend diffusers --trust-remote-code "
        '--diffusers-attention-backend flash --prompt "A serene Japanese garden" --height 1024 '
        "--width 1024 --num-inference-steps 30 --save-output --output-path outputs "
        "--output-file-name ovis_garden.png",
    ),
    (
        OLD_CLI,
        "--model-path AIDC-AI/Ovis-Image-7B --backend diffusers --trust-remote-code "
        '--prompt "A serene Japanese garden" --height 1024 --width 1024 '
        "--num-inference-steps 30 --guidance-scale 7.5 --save-output "
        "--output-path outputs/ovis_garden.png",
    ),
    (
        OLD_CLI,
        "--model-path stabilityai/stable-diffusion-xl-base-1.0 --backend diffusers --vae-tiling "
        '--height 2048 --width 2048 --prompt "A detailed landscape"',
    ),
    (
        README,
        "--model-path Wan-AI/Wan2.1-T2V-1.3B-Diffusers --text-encoder-cpu-offload "
        '--pin-cpu-memory --prompt "A curious raccoon" --save-output',
    ),
    (ATTENTION, '--model-path M --prompt "..." --attention-backend fa'),
    (ATTENTION, '--model-path M --prompt "..." --attention-backend torch_sdpa'),
    (
        ATTENTION,
        '--model-path M --prompt "..." --attention-backend fa '
        "--component-attention-backends text_encoder=torch_sdpa",
    ),
    (
        ATTENTION,
        '--model-path M --prompt "..." --attention-backend sliding_tile_attn '
        '--attention-backend-config "mask_strategy_file_path=/abs/path/to/mask_strategy.json"',
    ),
    (COOKBOOK, "--model-path Wan-AI/Wan2.1-T2V-1.3B-Diffusers --performance-mode memory"),
    (
        INSTALL,
        "--model-path black-forest-labs/FLUX.1-dev "
        '--prompt "A logo With Bold Large text: SGL Diffusion" --save-output',
    ),
    (
        QUANT,
        "--model-path black-forest-labs/FLUX.2-dev "
        "--transformer-path lmsys/flux2-dev-modelopt-fp8-sglang-transformer "
        '--prompt "A Logo With Bold Large Text: SGL Diffusion" --save-output',
    ),
    (
        QUANT,
        "--model-path Qwen/Qwen-Image-Edit-2511 --transformer-path lmsys/qwen-image-edit "
        "--image-path /path/to/input.png "
        '--prompt "Turn the scene into a warm watercolor illustration" --save-output',
    ),
    (
        BLOG,
        "--model-path=models/Wan-AI/Wan2.1-T2V-14B-Diffusers "
        '--prompt "A little kid playing basketball" --720p --save-output',
    ),
    (
        "python/sglang/multimodal_gen/configs/sample/sampling_params.py",
        "--prompt p --negative-prompt n --num-outputs-per-prompt 2 --seed 1024 --fps 24 "
        "--generator-device cuda --guidance-rescale 0.0 --no-save-output",
    ),
    (
        "python/sglang/multimodal_gen/runtime/server_args.py",
        "--model-path M --revision main --lora-path L --lora-nickname n --lora-scale 0.125 "
        "--dit-layerwise-offload true --dit-offload-prefetch-size 0.5 "
        "--image-encoder-cpu-offload false --vae-cpu-offload --enable-torch-compile true "
        "--num-gpus 1 --tp-size 1 --sp-degree 1 --ulysses-degree 1 --ring-degree 1 "
        "--enable-cfg-parallel false --log-level info --prompt-file-path prompts.txt",
    ),
]

REFUSED = [
    (
        CLI,
        "--num-gpus 4",
        "--model-path Wan-AI/Wan2.2-T2V-A14B-Diffusers --text-encoder-cpu-offload "
        "--pin-cpu-memory --num-gpus 4 --ulysses-degree 2 --ring-degree 2 "
        '--prompt "A curious raccoon" --save-output --output-path outputs '
        '--output-file-name "a-curious-raccoon.mp4"',
    ),
    (
        CLI_MDX,
        "--num-gpus 4",
        "--model-path Wan-AI/Wan2.2-T2V-A14B-Diffusers --text-encoder-cpu-offload "
        "--pin-cpu-memory --num-gpus 4 --ulysses-degree=2 --ring-degree=2 "
        '--prompt "A curious raccoon" --save-output --output-path outputs '
        '--output-file-name "A curious raccoon.mp4"',
    ),
    (
        COOKBOOK,
        "--num-gpus 2",
        "--model-path Qwen/Qwen-Image --num-gpus 2 --performance-mode auto "
        "--use-fsdp-inference false",
    ),
    (
        POST,
        "--enable-frame-interpolation",
        '--model-path Wan-AI/Wan2.2-T2V-A14B-Diffusers --prompt "A dog running through a park" '
        "--num-frames 5 --enable-frame-interpolation --frame-interpolation-exp 1 --save-output",
    ),
    (
        POST,
        "--enable-upscaling",
        '--model-path black-forest-labs/FLUX.2-dev --prompt "A cat sitting on a windowsill" '
        "--output-size 1024x1024 --enable-upscaling --save-output",
    ),
    (
        QUANT,
        "--quantization fp8",
        "--model-path Tongyi-MAI/Z-Image-Turbo --quantization fp8 "
        '--quantization-ignored-layers attention.to_ --prompt "a beautiful sunset" --save-output',
    ),
    (
        QUANT,
        "--transformer-weights-path",
        "--model-path black-forest-labs/FLUX.2-dev "
        "--transformer-weights-path black-forest-labs/FLUX.2-dev-NVFP4 "
        '--prompt "a curious pikachu"',
    ),
    (
        CACHE,
        "--cache-dit-config config.yaml",
        "--backend diffusers --model-path Qwen/Qwen-Image --cache-dit-config config.yaml "
        '--prompt "A beautiful sunset over the mountains"',
    ),
    (CLI, "--return-frames", "--model-path M --prompt p --return-frames"),
]


@pytest.mark.parametrize(("source", "line"), SERVED)
def test_documented_lines_are_understood(source: str, line: str) -> None:
    refuse_later(parse(shlex.split(line)).later)


@pytest.mark.parametrize(("source", "option", "line"), REFUSED)
def test_what_is_not_served_is_refused_and_never_ignored(
    source: str, option: str, line: str
) -> None:
    settings = parse(shlex.split(line))
    with pytest.raises(NotInThisVersion) as refused:
        refuse_later(settings.later)
    assert refused.value.cause.startswith(option)
    assert refused.value.evidence
    assert refused.value.exit_code == 2


def test_the_documented_config_file(tmp_path: Path) -> None:
    # The JSON example of docs/diffusion/api/cli.md and cli.mdx, in full.
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "model_path": "FastVideo/FastHunyuan-diffusers",
                "prompt": "A beautiful woman in a red dress walking down a street",
                "output_path": "outputs/",
                "num_gpus": 2,
                "sp_size": 2,
                "tp_size": 1,
                "num_frames": 45,
                "height": 720,
                "width": 1280,
                "num_inference_steps": 6,
                "seed": 1024,
                "fps": 24,
                "precision": "bf16",
                "vae_precision": "fp16",
                "vae_tiling": True,
                "vae_sp": True,
                "vae_config": {"load_encoder": False, "tile_sample_min_height": 256},
                "text_encoder_precisions": ["fp16", "fp16"],
                "mask_strategy_file_path": None,
                "enable_torch_compile": False,
            }
        )
    )
    settings = parse(["--config", str(config)])
    assert settings.model.model_path == "FastVideo/FastHunyuan-diffusers"
    assert settings.sampling.num_frames == 45
    assert settings.precision.dtype == "bfloat16"
    assert settings.precision.text_encoder_precisions == ("float16", "float16")
    with pytest.raises(NotInThisVersion, match="--num-gpus 2"):
        refuse_later(settings.later)


def test_names_that_only_diffusers_has_are_translated() -> None:
    from ditport.generation.attention import DIFFUSERS_NAMES

    settings = parse(["--diffusers-attention-backend", "_flash_3_hub"])
    assert DIFFUSERS_NAMES[settings.attention.attention_backend or ""] == "fa3"
