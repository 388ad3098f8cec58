"""Draws scenes: anti-aliased shapes by signed distance, a batch at a time."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from training.world import BACKGROUNDS, COLOURS, SHAPES, Scene

RADIUS = 0.22
"""Of the canvas: the radius of a circle that keeps its size."""
GROWTH = (0.13, 0.29)
"""Radius at the first and the last frame of a growing shape."""
TRAVEL = 0.18
"""Of the canvas: how far to each side of the middle a moving shape starts and ends."""
POSITION_JITTER = 0.03
SIZE_JITTER = 0.05

_TEXTURE_EXTENT = 1.6
_TEXTURE_SIZE = 192


@dataclass(frozen=True)
class Placement:
    """Where each scene of a batch starts and how big it is: tensors (batch,), canvas units."""

    x: Tensor
    y: Tensor
    scale: Tensor

    @staticmethod
    def centred(batch: int) -> Placement:
        zero = torch.zeros(batch)
        return Placement(zero, zero, torch.ones(batch))

    @staticmethod
    def jittered(batch: int, generator: torch.Generator) -> Placement:
        u = torch.rand(3, batch, generator=generator) * 2 - 1
        return Placement(u[0] * POSITION_JITTER, u[1] * POSITION_JITTER, 1 + u[2] * SIZE_JITTER)


def render(
    scenes: Sequence[Scene], frames: int, height: int, width: int, placement: Placement
) -> Tensor:
    """Pixels (batch, 3, frames, height, width) in [-1, 1].

    A single frame shows the middle of the motion: an image of a thing that moves right is
    the thing, in the middle.
    """
    foreground = torch.tensor([COLOURS[s.colour] for s in scenes]) / 127.5 - 1
    background = torch.tensor([BACKGROUNDS[s.background] for s in scenes]) / 127.5 - 1
    inside = coverage(scenes, frames, height, width, placement)[:, None]
    fg = foreground[:, :, None, None, None]
    bg = background[:, :, None, None, None]
    return bg + (fg - bg) * inside


def coverage(
    scenes: Sequence[Scene], frames: int, height: int, width: int, placement: Placement
) -> Tensor:
    """How much of each pixel the shape covers: (batch, frames, height, width) in [0, 1]."""
    centre_x, centre_y, radius = trajectory(scenes, frames, placement)
    shapes = [SHAPES.index(s.shape) for s in scenes]
    return draw(shapes, centre_x, centre_y, radius, height, width)


def trajectory(
    scenes: Sequence[Scene], frames: int, placement: Placement
) -> tuple[Tensor, Tensor, Tensor]:
    """Centre x, centre y, radius, each (batch, frames), in units of the canvas."""
    time = torch.linspace(-1, 1, frames) if frames > 1 else torch.zeros(1)
    sign_x = {"right": 1.0, "left": -1.0}
    sign_y = {"down": 1.0, "up": -1.0}
    dx = torch.tensor([sign_x.get(s.motion, 0.0) for s in scenes])
    dy = torch.tensor([sign_y.get(s.motion, 0.0) for s in scenes])
    growth = torch.tensor([{"growing": 1.0, "shrinking": -1.0}.get(s.motion, 0.0) for s in scenes])[
        :, None
    ]
    middle, half = sum(GROWTH) / 2, (GROWTH[1] - GROWTH[0]) / 2
    radius = torch.where(growth == 0, torch.tensor(RADIUS), middle + half * growth * time)
    return (
        0.5 + placement.x[:, None] + dx[:, None] * TRAVEL * time,
        0.5 + placement.y[:, None] + dy[:, None] * TRAVEL * time,
        radius * placement.scale[:, None],
    )


def draw(
    shapes: Sequence[int],
    centre_x: Tensor,
    centre_y: Tensor,
    radius: Tensor,
    height: int,
    width: int,
) -> Tensor:
    """Coverage (batch, frames, height, width) of shapes at (batch, frames) places."""
    batch, frames = radius.shape
    side = min(height, width)
    y = (torch.arange(height) + 0.5) / side - (height / side - 1) / 2
    x = (torch.arange(width) + 0.5) / side - (width / side - 1) / 2
    r = radius[..., None, None]
    u = (x - centre_x[..., None, None]) / r
    v = (y[:, None] - centre_y[..., None, None]) / r
    grid = torch.stack([u + 0 * v, v + 0 * u], -1) / _TEXTURE_EXTENT
    textures = distance_textures()[list(shapes)][:, None]
    distance = F.grid_sample(
        textures, grid.flatten(1, 2), mode="bilinear", padding_mode="border", align_corners=True
    ).view(batch, frames, height, width)
    return (0.5 - distance * r * side).clamp(0, 1)


@functools.cache
def distance_textures() -> Tensor:
    """Signed distance to each shape's edge, negative inside: (shape, y, x), in radii."""
    axis = np.linspace(-_TEXTURE_EXTENT, _TEXTURE_EXTENT, _TEXTURE_SIZE)
    x, y = np.meshgrid(axis, axis)
    circle = np.hypot(x, y)
    fields = {
        "circle": circle - 1.0,
        "ring": np.abs(circle - 0.82) - 0.28,
        "square": _polygon(x, y, [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        "triangle": _polygon(x, y, _spokes([1.3] * 3) + np.array([0.0, 0.25])),
        "star": _polygon(x, y, _spokes([1.35, 0.54] * 5)),
        "cross": np.minimum(_box(x, y, 1.1, 0.36), _box(x, y, 0.36, 1.1)),
    }
    return torch.from_numpy(np.stack([fields[s] for s in SHAPES])).float()


def _spokes(radii: list[float]) -> np.ndarray:
    """Corners around the origin, the first straight up."""
    angles = np.arange(len(radii)) * 2 * math.pi / len(radii) - math.pi / 2
    corners: np.ndarray = np.stack([np.cos(angles), np.sin(angles)], 1) * np.array(radii)[:, None]
    return corners


def _box(x: np.ndarray, y: np.ndarray, half_width: float, half_height: float) -> np.ndarray:
    w, h = half_width, half_height
    return _polygon(x, y, [(-w, -h), (w, -h), (w, h), (-w, h)])


def _polygon(x: np.ndarray, y: np.ndarray, corners: object) -> np.ndarray:
    points = np.asarray(corners, dtype=float)
    nearest = np.full(x.shape, np.inf)
    inside = np.zeros(x.shape, dtype=bool)
    for (ax, ay), (bx, by) in zip(points, np.roll(points, -1, axis=0), strict=True):
        ex, ey = bx - ax, by - ay
        along = np.clip(((x - ax) * ex + (y - ay) * ey) / (ex * ex + ey * ey), 0, 1)
        nearest = np.minimum(nearest, np.hypot(x - ax - along * ex, y - ay - along * ey))
        crosses = (ay > y) != (by > y)
        with np.errstate(divide="ignore", invalid="ignore"):
            inside ^= crosses & (x < ex * (y - ay) / ey + ax)
    signed: np.ndarray = np.where(inside, -nearest, nearest)
    return signed
