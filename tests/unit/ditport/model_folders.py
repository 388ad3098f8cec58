"""Model folders written by hand: what reading configs needs, and no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIGS: dict[str, dict[str, Any]] = {
    "transformer": {"_class_name": "WanTransformer3DModel", "patch_size": [1, 2, 2]},
    "vae": {
        "_class_name": "AutoencoderKLWan",
        "scale_factor_spatial": 4,
        "scale_factor_temporal": 4,
    },
    "text_encoder": {"architectures": ["UMT5EncoderModel"], "model_type": "umt5"},
}
CLASSES = {
    "scheduler": ["diffusers", "UniPCMultistepScheduler"],
    "text_encoder": ["transformers", "UMT5EncoderModel"],
    "tokenizer": ["transformers", "PreTrainedTokenizerFast"],
    "transformer": ["diffusers", "WanTransformer3DModel"],
    "transformer_2": [None, None],
    "vae": ["diffusers", "AutoencoderKLWan"],
}


def write_json(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def write_weights(path: Path, names: tuple[str, ...] = ("weight",), size: int = 4) -> None:
    """A safetensors file with float32 tensors of one dimension."""
    header, end = {}, 0
    for name in names:
        header[name] = {"dtype": "F32", "shape": [size], "data_offsets": [end, end + 4 * size]}
        end += 4 * size
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(end))


def write_model(
    folder: Path,
    pipeline: str = "WanPipeline",
    classes: dict[str, list[Any]] | None = None,
    configs: dict[str, dict[str, Any]] | None = None,
    defaults: dict[str, Any] | None = None,
) -> Path:
    """A complete folder of a pipeline."""
    write_json(folder / "model_index.json", {"_class_name": pipeline, **(classes or CLASSES)})
    for name, config in (configs or CONFIGS).items():
        write_json(folder / name / "config.json", config)
        stem = "model" if "architectures" in config else "diffusion_pytorch_model"
        write_weights(folder / name / f"{stem}.safetensors")
    write_json(folder / "scheduler" / "scheduler_config.json", {"_class_name": "Scheduler"})
    write_json(folder / "tokenizer" / "tokenizer.json", {})
    if defaults is not None:
        write_json(folder / "generation_defaults.json", defaults)
    return folder
