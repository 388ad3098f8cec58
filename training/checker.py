"""Reads a scene back from frames, by rules, and knows when there is none.

The rules were fixed on ground truth before the first model was judged by them. Whoever changes a
threshold has to show that ground truth still passes and that noise, blends and wrong captions still
fail (tests/unit/training/test_checker.py).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch

from training.scenes import draw
from training.world import BACKGROUNDS, COLOURS, SHAPES, Scene

MAX_COLOUR_DISTANCE = 70.0
"""In 8 bit RGB: the nearest two colours of the world are 85 apart."""
MAX_BORDER_DEVIATION = 16.0
MAX_BACKGROUND_DISTANCE = 45.0
MIN_OVERLAP = 0.75
"""Intersection over union with the shape drawn at the measured place and size."""
MIN_TRAVEL = 0.12
"""Of the canvas, from first to last frame; the world's is 0.36."""
MAX_DRIFT = 0.06
MIN_GROWTH = 0.35
"""Of the logarithm of the radius; the world's is 0.8."""
MAX_GROWTH_OF_OTHERS = 0.2


@dataclass(frozen=True)
class Reading:
    """What the frames show. None: not readable. overlap: of the best shape, mean over frames."""

    shape: str | None
    colour: str | None
    motion: str | None
    background: str | None
    overlap: float

    def right(self, scene: Scene, *, moving: bool = True) -> dict[str, bool]:
        """Per attribute; motion is left out for single images."""
        right = {
            "colour": self.colour == scene.colour,
            "shape": self.shape == scene.shape,
            "background": self.background == scene.background,
        }
        if moving:
            right["motion"] = self.motion == scene.motion
        return right


NOTHING = Reading(None, None, None, None, 0.0)


def read(frames: np.ndarray) -> Reading:
    """frames: (frames, height, width, 3), uint8."""
    pixels = frames.astype(np.float32)
    background = _background(pixels)
    if background is None:
        return NOTHING
    far = np.linalg.norm(pixels - np.array(BACKGROUNDS[background]), axis=-1)
    mask = far > 0.5 * max(np.percentile(far, 99.5), 60.0)
    if not all(0.006 < share < 0.5 for share in mask.mean(axis=(1, 2))):
        return Reading(None, None, None, background, 0.0)
    inside = _eroded(mask)
    colour = _colour(pixels[inside] if inside.sum() >= 10 else pixels[mask])
    shape, overlap, centre, radius = _shape(mask)
    return Reading(shape, colour, _motion(centre, radius), background, overlap)


def _background(pixels: np.ndarray) -> str | None:
    border = np.concatenate(
        [
            pixels[:, :2].reshape(-1, 3),
            pixels[:, -2:].reshape(-1, 3),
            pixels[:, :, :2].reshape(-1, 3),
            pixels[:, :, -2:].reshape(-1, 3),
        ]
    )
    # Over all frames at once: a background that flickers has no colour.
    middle = np.median(border, axis=0)
    deviation = np.sqrt(((border - middle) ** 2).mean(axis=0)).max()
    if deviation > MAX_BORDER_DEVIATION:
        return None
    distances = {n: float(np.linalg.norm(middle - np.array(c))) for n, c in BACKGROUNDS.items()}
    nearest = min(distances, key=lambda n: distances[n])
    return nearest if distances[nearest] < MAX_BACKGROUND_DISTANCE else None


def _colour(pixels: np.ndarray) -> str | None:
    middle = np.median(pixels, axis=0)
    distances = {n: float(np.linalg.norm(middle - np.array(c))) for n, c in COLOURS.items()}
    nearest = min(distances, key=lambda n: distances[n])
    spread = np.median(np.linalg.norm(pixels - middle, axis=-1))
    return nearest if distances[nearest] < MAX_COLOUR_DISTANCE and spread < 40 else None


def _shape(mask: np.ndarray) -> tuple[str | None, float, np.ndarray, np.ndarray]:
    """Best shape, its overlap, centres (frames, 2) as (x, y), radii (frames,); canvas units.

    Each shape is drawn where the mask's centroid and area put it. The best mean overlap names
    the shape, provided that it is best in most single frames too.
    """
    frames, height, width = mask.shape
    side = min(height, width)
    grid_y, grid_x = np.mgrid[0:height, 0:width] + 0.5
    area = mask.sum(axis=(1, 2))
    centroid = np.stack(
        [(mask * g).sum(axis=(1, 2)) / area / side for g in (grid_x, grid_y)], axis=1
    )
    overlaps = np.zeros((len(SHAPES), frames))
    radii = np.zeros((len(SHAPES), frames))
    for i, (unit_area, offset) in enumerate(_unit_moments()):
        radius = np.sqrt(area / unit_area) / side
        radii[i] = radius
        centre = centroid - offset * radius[:, None]
        drawn = (
            draw([i], _row(centre[:, 0]), _row(centre[:, 1]), _row(radius), height, width)[
                0
            ].numpy()
            > 0.5
        )
        both = (drawn & mask).sum(axis=(1, 2))
        overlaps[i] = both / np.maximum((drawn | mask).sum(axis=(1, 2)), 1)
    best = int(overlaps.mean(axis=1).argmax())
    overlap = float(overlaps[best].mean())
    votes = (overlaps.argmax(axis=0) == best).mean()
    name = SHAPES[best] if overlap >= MIN_OVERLAP and votes > 0.5 else None
    return name, overlap, centroid, radii[best]


def _row(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.float32))[None]


@functools.cache
def _unit_moments() -> list[tuple[float, np.ndarray]]:
    """Area and centroid of each shape at radius 1."""
    side, radius = 512, 0.3
    half = torch.full((1, 1), 0.5)
    moments = []
    grid_y, grid_x = (np.mgrid[0:side, 0:side] + 0.5) / side - 0.5
    for i in range(len(SHAPES)):
        drawn = draw([i], half, half, torch.full((1, 1), radius), side, side)[0, 0].numpy()
        total = drawn.sum()
        centroid = np.array([(drawn * grid_x).sum(), (drawn * grid_y).sum()]) / total / radius
        moments.append((float(total / side**2 / radius**2), centroid))
    return moments


def _motion(centre: np.ndarray, radius: np.ndarray) -> str | None:
    """One motion, and none of the others beside it."""
    if len(centre) == 1:
        return "still"
    dx, dy = centre[-1] - centre[0]
    growth = float(np.log(radius[-1] / radius[0]))
    if abs(growth) > MIN_GROWTH:
        if max(abs(dx), abs(dy)) > MAX_DRIFT:
            return None
        return _steady(np.log(radius), growth, "growing" if growth > 0 else "shrinking")
    if abs(growth) > MAX_GROWTH_OF_OTHERS:
        return None
    if max(abs(dx), abs(dy)) <= MAX_DRIFT:
        return "still"
    if min(abs(dx), abs(dy)) > MAX_DRIFT or max(abs(dx), abs(dy)) < MIN_TRAVEL:
        return None
    if abs(dx) > abs(dy):
        return _steady(centre[:, 0], dx, "right" if dx > 0 else "left")
    return _steady(centre[:, 1], dy, "down" if dy > 0 else "up")


def _steady(values: np.ndarray, total: float, name: str) -> str | None:
    """The name, if the middle of the clip is on the way: no jump, no return."""
    middle = (values[len(values) // 2] - values[0]) / total
    return name if 0.2 < middle < 0.8 else None


def _eroded(mask: np.ndarray) -> np.ndarray:
    inner = mask.copy()
    for axis in (1, 2):
        inner &= np.roll(mask, 1, axis) & np.roll(mask, -1, axis)
    return inner
