from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import Tensor

from training.checker import read
from training.scenes import Placement, render
from training.world import Scene, all_combinations, random_scene


def to_uint8(pixels: Tensor) -> np.ndarray:
    """(batch, 3, frames, h, w) in [-1, 1] to (batch, frames, h, w, 3)."""
    array: np.ndarray = (
        ((pixels.clamp(-1, 1) + 1) * 127.5).round().byte().permute(0, 2, 3, 4, 1).numpy()
    )
    return array


def ground_truth(side: int, frames: int, count: int) -> list[tuple[Scene, np.ndarray]]:
    rng, generator = random.Random(side + frames), torch.Generator().manual_seed(side + frames)
    scenes = [random_scene(rng, all_combinations()) for _ in range(count)]
    pixels = render(scenes, frames, side, side, Placement.jittered(count, generator))
    return list(zip(scenes, to_uint8(pixels), strict=True))


@pytest.mark.parametrize(
    ("side", "frames", "count"), [(64, 13, 24), (128, 13, 4), (64, 1, 60), (128, 1, 20)]
)
def test_ground_truth_reads_back(side: int, frames: int, count: int) -> None:
    # None of 1700 was wrong when the rules were fixed; this is a sample.
    for scene, video in ground_truth(side, frames, count):
        reading = read(video)
        assert all(reading.right(scene, moving=frames > 1).values()), (scene, reading)


def test_a_wrong_caption_is_wrong() -> None:
    for scene, video in ground_truth(64, 13, 8):
        reading = read(video)
        for changed, attribute in (
            (
                Scene(
                    "ring" if scene.shape != "ring" else "star",
                    scene.colour,
                    scene.motion,
                    scene.background,
                ),
                "shape",
            ),
            (
                Scene(
                    scene.shape,
                    "red" if scene.colour != "red" else "pink",
                    scene.motion,
                    scene.background,
                ),
                "colour",
            ),
            (
                Scene(
                    scene.shape,
                    scene.colour,
                    "left" if scene.motion != "left" else "right",
                    scene.background,
                ),
                "motion",
            ),
            (
                Scene(
                    scene.shape,
                    scene.colour,
                    scene.motion,
                    "white" if scene.background != "white" else "gray",
                ),
                "background",
            ),
        ):
            right = reading.right(changed)
            assert [name for name in right if not right[name]] == [attribute]


def test_noise_is_nothing() -> None:
    rng = np.random.default_rng(0)
    for frames in (1, 13):
        noise = rng.integers(0, 256, (frames, 64, 64, 3), dtype=np.uint8)
        reading = read(noise)
        assert (reading.shape, reading.colour, reading.background) == (None, None, None)


def test_an_empty_frame_has_no_shape() -> None:
    reading = read(np.full((13, 64, 64, 3), 128, dtype=np.uint8))
    assert (reading.shape, reading.colour, reading.background) == (None, None, "gray")


def test_noise_on_a_plain_background_has_no_shape() -> None:
    rng = np.random.default_rng(0)
    video = np.zeros((13, 64, 64, 3), dtype=np.uint8)
    video[:, 20:44, 20:44] = rng.integers(0, 256, (13, 24, 24, 3))
    reading = read(video)
    assert reading.colour is None


def test_a_blob_that_jumps_or_returns_has_no_motion() -> None:
    for scene, video in ground_truth(64, 13, 10):
        if scene.motion in ("right", "left", "up", "down"):
            jumping = np.concatenate([video[:1].repeat(12, 0), video[-1:]])
            assert read(jumping).motion is None
            returning = np.concatenate([video[:7], video[:6][::-1]])
            assert read(returning).motion != scene.motion


def test_a_half_faded_shape_is_not_its_colour() -> None:
    scene = Scene("square", "yellow", "still", "black")
    pixels = render([scene], 13, 64, 64, Placement.centred(1))
    assert read(to_uint8(pixels * 0.4 - 0.6)[0]).colour is None
