"""Writes the demo model: a diffusers folder that from_pretrained loads with no code of ours."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from diffusers import WanPipeline

from training import checkpoints
from training.architecture import (
    build_scheduler,
    build_text_encoder,
    build_tokenizer,
    build_transformer,
    build_vae,
)
from training.captions import vocabulary
from training.dit import DitSettings
from training.world import BACKGROUNDS, COLOURS, SHAPES

GENERATION_DEFAULTS: dict[str, Any] = {
    "height": 64,
    "width": 64,
    "num_frames": 13,
    "fps": 8,
    "num_inference_steps": 8,
    "guidance_scale": 2.0,
    "negative_prompt": "",
    "sizes": [[k.side, k.side, k.frames] for k in DitSettings().kinds],
    "vocabulary": vocabulary(),
    "note": (
        f"The demo model draws one {', '.join(SHAPES[:-1])} or {SHAPES[-1]} in "
        f"{', '.join(list(COLOURS)[:-1])} or {list(COLOURS)[-1]} on a "
        f"{', '.join(list(BACKGROUNDS)[:-1])} or {list(BACKGROUNDS)[-1]} background, which stands "
        "still, moves right, left, up or down, grows or shrinks."
    ),
}
"""What ``generation_defaults.json`` holds; pipelines ignore the file, ditport's CLI reads it."""

KEPT = ("README.md", "contact_sheet.png", "evaluation.json")
"""Files of the folder that other steps write."""


def write_generation_defaults(model: Path) -> None:
    model.mkdir(parents=True, exist_ok=True)
    text = json.dumps(GENERATION_DEFAULTS, indent=2) + "\n"
    (model / "generation_defaults.json").write_text(text)


def build_pipeline(folder: Path) -> WanPipeline:
    """From the averaged weights of the checkpoints, in float32."""
    transformer, text_encoder, vae = build_transformer(), build_text_encoder(), build_vae()
    state = checkpoints.load(folder / "dit.pt")
    if state is None:
        raise FileNotFoundError(f"{folder / 'dit.pt'}: run `python -m training dit` first")
    for name, module in (("transformer.", transformer), ("text_encoder.", text_encoder)):
        part = {k[len(name) :]: v for k, v in state["average"].items() if k.startswith(name)}
        module.load_state_dict(part)
    state = checkpoints.load(folder / "vae.pt")
    if state is None:
        raise FileNotFoundError(f"{folder / 'vae.pt'}: run `python -m training vae` first")
    vae.load_state_dict(state["average"])
    return WanPipeline(
        tokenizer=build_tokenizer(),
        text_encoder=text_encoder.eval(),
        vae=vae.eval(),
        scheduler=build_scheduler(),
        transformer=transformer.eval(),
    )


def export(folder: Path, model: Path) -> None:
    """Replaces the model folder, but for the files that evaluation writes."""
    pipeline = build_pipeline(folder)
    for module in (pipeline.transformer, pipeline.text_encoder, pipeline.vae):
        module.to(torch.float16)
    if model.exists():
        for entry in model.iterdir():
            if entry.name not in KEPT:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    pipeline.save_pretrained(model)
    _name_the_tokenizer_class(model)
    write_generation_defaults(model)
    for path in model.rglob("*"):
        # safetensors writes files for their owner only; a container runs as somebody else.
        path.chmod(0o755 if path.is_dir() else 0o644)
    size = sum(f.stat().st_size for f in model.rglob("*") if f.is_file())
    print(f"{model}: {size / 1e6:.2f} MB", flush=True)


def _name_the_tokenizer_class(model: Path) -> None:
    """transformers 5 writes a class name that transformers 4 does not know; the old one is an
    alias in both."""
    for path, keys in (
        (model / "model_index.json", ("tokenizer",)),
        (model / "tokenizer" / "tokenizer_config.json", ("tokenizer_class",)),
    ):
        content = json.loads(path.read_text())
        for key in keys:
            is_pair = isinstance(content[key], list)
            name = "PreTrainedTokenizerFast"
            content[key] = ["transformers", name] if is_pair else name
        path.write_text(json.dumps(content, indent=2) + "\n")
