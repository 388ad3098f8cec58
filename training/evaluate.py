"""Judges an exported model folder through the plain diffusers pipeline, prompt by prompt."""

from __future__ import annotations

import functools
import json
import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from PIL import Image

from training.captions import canonical_caption, caption
from training.checker import read
from training.export import GENERATION_DEFAULTS
from training.pads import TEXT_LENGTH, TrainingAttention, pad_bias
from training.world import (
    BACKGROUNDS,
    COLOURS,
    MOTIONS,
    SHAPES,
    Scene,
    all_combinations,
    held_out_combinations,
    held_out_pairs,
    random_scene,
)

ATTRIBUTES = ("colour", "shape", "motion", "background")


@dataclass(frozen=True)
class Size:
    frames: int
    side: int
    prompts: int

    @property
    def label(self) -> str:
        return f"{self.side}x{self.side}x{self.frames}"


SIZES = (Size(13, 64, 400), Size(1, 64, 400), Size(13, 128, 100), Size(1, 128, 100))


@dataclass(frozen=True)
class Verdict:
    """One generated sample: what was asked, and which attributes came out right."""

    size: str
    prompt: str
    scene: Scene
    held_out: bool
    right: dict[str, bool]
    read: dict[str, Any]

    @property
    def jointly(self) -> bool:
        return all(self.right.values())


def load(model: Path) -> Any:
    """The plain pipeline, as any user of the folder gets it."""
    pipeline = DiffusionPipeline.from_pretrained(model, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def shorten_text(pipeline: Any) -> None:
    """Lets the hundreds of equal pads be one with their weight: the same result for less time.

    `difference_of_short_text` measures how much the same.
    """
    pipeline.transformer.set_attn_processor(TrainingAttention(pad_bias(1.0)))


def generate(
    pipeline: Any, prompts: list[str], size: Size, seeds: list[int], **settings: Any
) -> np.ndarray:
    """(prompts, frames, side, side, 3), uint8. A sample depends on its own seed, not its batch."""
    options: dict[str, Any] = {
        "num_inference_steps": GENERATION_DEFAULTS["num_inference_steps"],
        "guidance_scale": GENERATION_DEFAULTS["guidance_scale"],
        **settings,
    }
    processor = next(iter(pipeline.transformer.attn_processors.values()))
    if isinstance(processor, TrainingAttention):
        options["prompt_embeds"], options["negative_prompt_embeds"] = pipeline.encode_prompt(
            prompts, max_sequence_length=TEXT_LENGTH, device=torch.device("cpu")
        )
    else:
        options["prompt"] = prompts
    frames = pipeline(
        height=size.side,
        width=size.side,
        num_frames=size.frames,
        generator=[torch.Generator().manual_seed(s) for s in seeds],
        output_type="np",
        **options,
    ).frames
    return (np.asarray(frames) * 255).round().clip(0, 255).astype(np.uint8)


def difference_of_short_text(model: Path) -> int:
    """The largest difference of a pixel, of 255, between the real text path and the short one."""
    prompts = [
        "a red circle moving right on a black background",
        "a green star that grows",
        "an image of the blue cross, falling, on white",
        "pink ring over a gray background",
    ]
    size, seeds = Size(13, 64, 4), [0, 1, 2, 3]
    pipeline = load(model)
    real = generate(pipeline, prompts, size, seeds)
    shorten_text(pipeline)
    short = generate(pipeline, prompts, size, seeds)
    return int(np.abs(real.astype(int) - short.astype(int)).max())


def judge(
    pipeline: Any, size: Size, part: range, seed: int = 1234, batch: int = 10, **settings: Any
) -> list[Verdict]:
    """Random scenes of all combinations, each in one of its many wordings; those in `part`."""
    rng = random.Random(seed)
    combinations = all_combinations()
    scenes = [random_scene(rng, combinations) for _ in range(size.prompts)]
    prompts = [caption(s, rng) for s in scenes]
    verdicts = []
    for start in range(part.start, part.stop, batch):
        chosen = range(start, min(start + batch, part.stop))
        videos = generate(
            pipeline,
            [prompts[i] for i in chosen],
            size,
            [seed + i for i in chosen],
            **settings,
        )
        for i, video in zip(chosen, videos, strict=True):
            reading = read(video)
            verdicts.append(
                Verdict(
                    size.label,
                    prompts[i],
                    scenes[i],
                    is_held_out(scenes[i], size),
                    reading.right(scenes[i], moving=size.frames > 1),
                    asdict(reading),
                )
            )
    return verdicts


def judge_in_process(model: Path, size: Size, part: range, short_text: bool) -> list[Verdict]:
    """As `judge`, with the pipeline that the process has loaded before, if it has."""
    torch.set_num_threads(1)
    return judge(_pipeline_of_process(model, short_text), size, part)


@functools.cache
def _pipeline_of_process(model: Path, short_text: bool) -> Any:
    pipeline = load(model)
    if short_text:
        shorten_text(pipeline)
    return pipeline


def is_held_out(scene: Scene, size: Size) -> bool:
    if size.frames == 1:
        return (scene.shape, scene.colour) in held_out_pairs()
    return scene.combination in held_out_combinations()


def rows(verdicts: list[Verdict]) -> list[dict[str, Any]]:
    """Per size: all, seen and held-out combinations; shares in percent."""
    table: list[dict[str, Any]] = []
    for size in dict.fromkeys(v.size for v in verdicts):
        of_size = [v for v in verdicts if v.size == size]
        for name, part in (
            ("all", of_size),
            ("seen", [v for v in of_size if not v.held_out]),
            ("held out", [v for v in of_size if v.held_out]),
        ):
            if not part:
                continue
            row: dict[str, Any] = {"size": size, "combinations": name, "prompts": len(part)}
            for attribute in ATTRIBUTES:
                values = [v.right[attribute] for v in part if attribute in v.right]
                row[attribute] = round(100 * sum(values) / len(values), 1) if values else None
            row["jointly"] = round(100 * sum(v.jointly for v in part) / len(part), 1)
            table.append(row)
    return table


def shape_rows(verdicts: list[Verdict]) -> list[dict[str, Any]]:
    """Per size and shape, since shapes are what is hardest."""
    return [
        {
            "size": size,
            "shape": shape,
            "prompts": len(part),
            "jointly": round(100 * sum(v.jointly for v in part) / len(part), 1),
        }
        for size in dict.fromkeys(v.size for v in verdicts)
        for shape in SHAPES
        if (part := [v for v in verdicts if v.size == size and v.scene.shape == shape])
    ]


def markdown(table: list[dict[str, Any]]) -> str:
    head = list(table[0])
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in table:
        lines.append("| " + " | ".join("-" if row[h] is None else str(row[h]) for h in head) + " |")
    return "\n".join(lines)


def write_contact_sheet(model: Path, videos: int = 14) -> None:
    """First, middle and last frame of videos at both sizes; a row of images. No picking: the
    scenes walk through all attributes in order, seeds count up."""
    scenes = [
        Scene(
            SHAPES[i % 6],
            list(COLOURS)[(i * 3 + i // 8) % 8],
            MOTIONS[(i + 1) % 7],
            list(BACKGROUNDS)[i % 3],
        )
        for i in range(videos)
    ]
    torch.set_num_threads(1)
    pipeline = load(model)
    cell = 96
    columns: list[np.ndarray] = []
    for size in (Size(13, 64, videos), Size(13, 128, videos), Size(1, 64, videos)):
        for start in range(0, videos, 7):
            part = scenes[start : start + 7]
            made = generate(
                pipeline,
                [canonical_caption(s) for s in part],
                size,
                list(range(start, start + len(part))),
            )
            moments = (0, 6, 12) if size.frames > 1 else (0,)
            cells = [
                [
                    np.asarray(
                        Image.fromarray(video[m]).resize((cell, cell), Image.Resampling.NEAREST)
                    )
                    for video in made
                ]
                for m in moments
            ]
            columns += [np.concatenate(row, axis=1) for row in cells]
    sheet = Image.fromarray(np.concatenate(columns, axis=0))
    # A palette, for the size of the file; no dithering, which would look like the model's noise.
    sheet.quantize(96, dither=Image.Dither.NONE).save(model / "contact_sheet.png", optimize=True)


def evaluate(model: Path, sizes: tuple[Size, ...] = SIZES, processes: int = 2) -> None:
    """Writes evaluation.json and contact_sheet.png into the model folder; prints the tables."""
    torch.set_num_threads(1)
    difference = difference_of_short_text(model)
    print(f"short text differs from the pipeline's own by {difference}/255 at most", flush=True)
    short_text = difference <= 1
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        sheet = pool.submit(write_contact_sheet, model)
        futures = [
            pool.submit(
                judge_in_process,
                model,
                size,
                range(start, min(start + 20, size.prompts)),
                short_text,
            )
            for size in sizes
            for start in range(0, size.prompts, 20)
        ]
        verdicts: list[Verdict] = []
        for future in futures:
            verdicts += future.result()
            last = verdicts[-1].size
            of_size = [v for v in verdicts if v.size == last]
            right = sum(v.jointly for v in of_size) / len(of_size)
            print(f"{last}: {right:.1%} of {len(of_size)}", flush=True)
            # Again and again, so that an interrupted evaluation still says what it found.
            _write_report(model, verdicts, difference)
        sheet.result()
    print(markdown(rows(verdicts)), markdown(shape_rows(verdicts)), sep="\n\n", flush=True)


def _write_report(model: Path, verdicts: list[Verdict], difference: int) -> None:
    report = {
        "settings": {k: GENERATION_DEFAULTS[k] for k in ("num_inference_steps", "guidance_scale")},
        "short text": {"used": difference <= 1, "largest pixel difference": difference},
        "table": rows(verdicts),
        "by shape": shape_rows(verdicts),
        "wrong": [
            {"size": v.size, "prompt": v.prompt, "read": v.read} for v in verdicts if not v.jointly
        ],
    }
    (model / "evaluation.json").write_text(json.dumps(report, indent=1) + "\n")
