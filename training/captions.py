"""Scene to English and back. The words used here are all the demo understands."""

from __future__ import annotations

import random
import re

from training.world import BACKGROUNDS, COLOURS, MOTIONS, SHAPES, Scene

SHAPE_WORDS: dict[str, tuple[str, ...]] = {
    "circle": ("circle", "circle", "circle", "disk", "ball"),
    "square": ("square", "square", "square", "box"),
    "triangle": ("triangle",),
    "star": ("star",),
    "ring": ("ring", "ring", "ring", "hoop"),
    "cross": ("cross", "cross", "cross", "plus"),
}
COLOUR_WORDS: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in COLOURS},
    "purple": ("purple", "purple", "violet"),
}
BACKGROUND_WORDS: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in BACKGROUNDS},
    "gray": ("gray", "grey"),
}
MOTION_PHRASES: dict[str, tuple[str, ...]] = {
    "still": ("", "", "standing still", "not moving", "that stays still"),
    "right": ("moving right", "moving to the right", "going right", "that moves right"),
    "left": ("moving left", "moving to the left", "going left", "that moves left"),
    "up": ("moving up", "going up", "moving upwards", "that moves up", "rising"),
    "down": ("moving down", "going down", "moving downwards", "that moves down", "falling"),
    "growing": ("growing", "getting bigger", "that grows"),
    "shrinking": ("shrinking", "getting smaller", "that shrinks"),
}
BACKGROUND_PHRASES = ("on a {} background", "on {}", "with a {} background", "over a {} background")
PREFIXES = ("", "", "", "a video of ", "an image of ")


def canonical_caption(scene: Scene) -> str:
    """The wording that the documentation uses."""
    motion = MOTION_PHRASES[scene.motion][0] if scene.motion != "still" else ""
    words = ["a", scene.colour, scene.shape, motion, "on a", scene.background, "background"]
    return _sentence(words)


def caption(scene: Scene, rng: random.Random) -> str:
    """One of many wordings of the scene; black may go unsaid, and so may standing still."""
    if rng.random() < 0.4:
        return canonical_caption(scene)
    shape = rng.choice(SHAPE_WORDS[scene.shape])
    colour = rng.choice(COLOUR_WORDS[scene.colour])
    motion = rng.choice(MOTION_PHRASES[scene.motion])
    background = rng.choice(BACKGROUND_PHRASES).format(
        rng.choice(BACKGROUND_WORDS[scene.background])
    )
    if scene.background == "black" and rng.random() < 0.4:
        background = ""
    article = rng.choice(("a", "a", "the", ""))
    prefix = rng.choice(PREFIXES)
    form = rng.random()
    if form < 0.12 and background:
        return _sentence([background, ",", prefix, article, colour, shape, motion])
    if form < 0.24:
        return _sentence([prefix, article, shape, "that is", colour, ",", motion, background])
    comma = "," if rng.random() < 0.2 and background else ""
    return _sentence([prefix, article, colour, shape, motion, comma, background])


def parse_caption(text: str) -> Scene:
    """The scene that a caption of this module names; ValueError where it names none."""
    words = re.findall(r"\w+", text.lower())
    colour = _named(words, COLOUR_WORDS)
    shape = _named(words, SHAPE_WORDS)
    background = _named(words, BACKGROUND_WORDS)
    if colour is None or shape is None:
        raise ValueError(f"no colour or no shape in {text!r}")
    joined = " ".join(words)
    motion = "still"
    for name, phrases in MOTION_PHRASES.items():
        if any(p and re.search(rf"\b{p}\b", joined) for p in phrases):
            motion = name
    return Scene(shape, colour, motion, background or "black")


def vocabulary() -> list[str]:
    """Every word and mark that a caption can hold, sorted."""
    text: list[str] = ["a an the that is ,", "background image video of"]
    text += [
        w
        for table in (SHAPE_WORDS, COLOUR_WORDS, BACKGROUND_WORDS)
        for ws in table.values()
        for w in ws
    ]
    text += [p for phrases in MOTION_PHRASES.values() for p in phrases]
    text += [p.format("") for p in BACKGROUND_PHRASES]
    return sorted(set(re.findall(r"\w+|,", " ".join(text))))


def _named(words: list[str], table: dict[str, tuple[str, ...]]) -> str | None:
    found = [name for name, synonyms in table.items() if set(synonyms) & set(words)]
    return found[0] if found else None


def _sentence(parts: list[str]) -> str:
    text = " ".join(p.strip() for p in parts if p.strip())
    return text.replace(" ,", ",").strip(", ")


assert set(MOTION_PHRASES) == set(MOTIONS)
assert set(SHAPE_WORDS) == set(SHAPES)
