"""What can be said and drawn: the attributes, and which combinations training never sees."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

SHAPES = ("circle", "square", "triangle", "star", "ring", "cross")
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (220, 38, 38),
    "green": (34, 170, 70),
    "blue": (45, 80, 235),
    "yellow": (250, 220, 40),
    "orange": (250, 135, 25),
    "purple": (135, 50, 190),
    "cyan": (30, 200, 220),
    "pink": (250, 130, 190),
}
BACKGROUNDS: dict[str, tuple[int, int, int]] = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "gray": (128, 128, 128),
}
MOTIONS = ("still", "right", "left", "up", "down", "growing", "shrinking")

Combination = tuple[str, str, str]
"""(shape, colour, motion)"""


@dataclass(frozen=True)
class Scene:
    """One thing that a caption can name. Position and size jitter are the renderer's."""

    shape: str
    colour: str
    motion: str = "still"
    background: str = "black"

    @property
    def combination(self) -> Combination:
        return (self.shape, self.colour, self.motion)


def all_combinations() -> list[Combination]:
    return list(itertools.product(SHAPES, COLOURS, MOTIONS))


def held_out_combinations() -> frozenset[Combination]:
    """15 % of the combinations, which training never draws.

    Five whole (shape, colour) pairs, one per shape but the circle, so that single images,
    which have no motion, have unseen cases too; the rest are single triples.
    """
    everything = all_combinations()
    rng = random.Random(20)
    colours = rng.sample(sorted(COLOURS), len(SHAPES) - 1)
    pairs = set(zip(SHAPES[1:], colours, strict=True))
    held_out = {c for c in everything if c[:2] in pairs}
    rest = [c for c in everything if c not in held_out]
    held_out.update(rng.sample(rest, round(0.15 * len(everything)) - len(held_out)))
    return frozenset(held_out)


def held_out_pairs() -> frozenset[tuple[str, str]]:
    """The (shape, colour) pairs that training never shows under any motion."""
    held_out = held_out_combinations()
    return frozenset(
        (shape, colour)
        for shape in SHAPES
        for colour in COLOURS
        if all((shape, colour, motion) in held_out for motion in MOTIONS)
    )


def seen_combinations() -> list[Combination]:
    held_out = held_out_combinations()
    return [c for c in all_combinations() if c not in held_out]


def random_scene(rng: random.Random, combinations: list[Combination]) -> Scene:
    shape, colour, motion = rng.choice(combinations)
    return Scene(shape, colour, motion, rng.choice(tuple(BACKGROUNDS)))
