"""What sparsity costs on a real model: the demo's videos by each sparse backend beside dense ones.

    python -m bench.sparse_quality [--model DIR] [--prompts N] [--sizes 64 128] [--json FILE]

For every setting: the density of self-attention, PSNR and SSIM against the dense video of the same
seed, and how many videos show what was asked (read by training.checker) of those that the dense
model got right.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import avg_pool2d

from polyattn.call import Grid
from polyattn.integrations.diffusers import attach
from polyattn.preferences import preferences_from_options
from polyattn.sparse.sliding_tile import density
from polyattn.sparse.video_sparse import kept
from training.captions import canonical_caption
from training.checker import read
from training.evaluate import Size, generate, load
from training.world import all_combinations, random_scene

MODEL = Path(__file__).parents[1] / "runtime" / "ditport" / "demo" / "model"
FRAMES = 13


@dataclass(frozen=True)
class Setting:
    """A backend with its options, and the share of query-key pairs that it computes."""

    backend: str
    options: dict[str, Any]
    density: float


@dataclass(frozen=True)
class Outcome:
    """How the videos of a setting compare with the dense ones."""

    size: int
    setting: Setting
    psnr_mean: float
    psnr_least: float
    ssim_mean: float
    right: int
    dense_right: int
    prompts: int


def settings(grid: Grid) -> list[Setting]:
    """Full density first, then what leaves keys out."""
    found = []
    tile = (1, grid.height // 4, grid.width // 4)
    for window in ((9, 9, 9), (3, 4, 4), (3, 3, 4), (3, 3, 3)):
        options = {"tile_size": tile, "window": window}
        found.append(Setting("sliding_tile_attn", options, density(grid, tile, [window])))
    for sparsity in (0.0, 0.25, 0.5, 0.75):
        topk, count = kept(grid, sparsity, "blocks")
        found.append(Setting("video_sparse_attn", {"sparsity": sparsity}, topk / count))
    for chunk in ((4, 4, 4), (2, 2, 2)):
        sizes = (grid.frames, grid.height, grid.width)
        count = math.prod(-(-n // c) for n, c in zip(sizes, chunk, strict=True))
        for share in (1.0, 0.5, 0.25):
            topk = max(1, round(share * count))
            options = {
                "moba_select_mode": "topk",
                "temporal_layer": 0,
                "spatial_layer": 0,
                "st_chunk_size": chunk,
                "st_topk": topk,
                "first_full_step": 0,
            }
            found.append(Setting("vmoba_attn", options, topk / count))
    return found


def psnr(video: np.ndarray, other: np.ndarray) -> float:
    """Decibels; 99 for the same pixels."""
    error = float(np.mean((video.astype(float) - other.astype(float)) ** 2))
    return 99.0 if error == 0 else min(99.0, 10 * math.log10(255**2 / error))


def ssim(video: np.ndarray, other: np.ndarray) -> float:
    """Structural similarity, windows of 8x8 pixels, mean over windows, channels and frames."""
    a, b = (torch.from_numpy(v).double().permute(0, 3, 1, 2) / 255 for v in (video, other))
    mean_a, mean_b = avg_pool2d(a, 8, 1), avg_pool2d(b, 8, 1)
    var_a = avg_pool2d(a * a, 8, 1) - mean_a**2
    var_b = avg_pool2d(b * b, 8, 1) - mean_b**2
    both = avg_pool2d(a * b, 8, 1) - mean_a * mean_b
    light = (2 * mean_a * mean_b + 1e-4) / (mean_a**2 + mean_b**2 + 1e-4)
    return float((light * (2 * both + 9e-4) / (var_a + var_b + 9e-4)).mean())


def compare(pipeline: Any, side: int, prompts: int) -> list[Outcome]:
    """Every setting at one size."""
    generator, combinations = random.Random(7), all_combinations()
    scenes = [random_scene(generator, combinations) for _ in range(prompts)]
    words, seeds = [canonical_caption(scene) for scene in scenes], list(range(prompts))
    size = Size(FRAMES, side, prompts)
    dense = generate(pipeline, words, size, seeds)

    def right(videos: np.ndarray) -> list[bool]:
        return [
            all(read(video).right(scene).values())
            for video, scene in zip(videos, scenes, strict=True)
        ]

    dense_right = right(dense)
    found = []
    for setting in settings(Grid((FRAMES - 1) // 4 + 1, side // 8, side // 8)):
        asked = preferences_from_options(
            setting.backend, attention_backend_config=json.dumps(setting.options)
        )
        attachment = attach(pipeline, asked)
        try:
            videos = generate(pipeline, words, size, seeds)
        finally:
            attachment.detach()
        decibels = [psnr(v, d) for v, d in zip(videos, dense, strict=True)]
        still = [now and then for now, then in zip(right(videos), dense_right, strict=True)]
        outcome = Outcome(
            side,
            setting,
            float(np.mean(decibels)),
            min(decibels),
            float(np.mean([ssim(v, d) for v, d in zip(videos, dense, strict=True)])),
            sum(still),
            sum(dense_right),
            prompts,
        )
        found.append(outcome)
        print(
            f"{side:4} {setting.backend:18} density {setting.density:.2f}  PSNR mean "
            f"{outcome.psnr_mean:5.1f} least {outcome.psnr_least:5.1f}  SSIM "
            f"{outcome.ssim_mean:.3f}  right {outcome.right} of {outcome.dense_right}  "
            f"{json.dumps(setting.options)}",
            flush=True,
        )
    return found


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--sizes", type=int, nargs="+", default=(64, 128), metavar="SIDE")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pipeline = load(arguments.model)
    outcomes = [o for side in arguments.sizes for o in compare(pipeline, side, arguments.prompts)]
    if arguments.json:
        text = json.dumps([asdict(outcome) for outcome in outcomes], indent=2)
        arguments.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
