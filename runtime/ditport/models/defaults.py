"""Generation defaults that a model folder brings: `generation_defaults.json` beside its index.

A model that was made for 64x64 and 8 steps is useless at its pipeline class's 480x832 and 50,
and diffusers has no place for such defaults.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ditport.errors import ModelIncomplete

FILE_NAME: Final = "generation_defaults.json"


@dataclass(frozen=True)
class GenerationDefaults:
    """What the model's makers advise. None: nothing said."""

    height: int | None = None
    width: int | None = None
    num_frames: int | None = None
    fps: int | None = None
    num_inference_steps: int | None = None
    guidance_scale: float | None = None
    negative_prompt: str | None = None
    sizes: tuple[tuple[int, ...], ...] = ()  # (width, height, frames) that it was trained on
    vocabulary: tuple[str, ...] = ()  # every word that it understands; () if it is not limited
    note: str | None = None  # what it does, told to someone who asks for something else

    def unknown_words(self, prompt: str) -> tuple[str, ...]:
        """The words of a prompt that the model was never taught."""
        if not self.vocabulary:
            return ()
        known = {word.lower() for word in self.vocabulary}
        words = re.findall(r"[^\W_]+(?:'[^\W_]+)?", prompt.lower())
        return tuple(dict.fromkeys(word for word in words if word not in known))


NO_DEFAULTS: Final = GenerationDefaults()


def read_defaults(folder: Path) -> GenerationDefaults:
    """The folder's defaults, or none."""
    path = folder / FILE_NAME
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return NO_DEFAULTS
    except (OSError, ValueError) as error:
        raise ModelIncomplete(f"{path} cannot be read.", f"{error}.") from None
    if not isinstance(data, dict):
        raise ModelIncomplete(f"{path} is not a mapping of settings.")
    plain = {
        name: data[name]
        for name in GenerationDefaults.__dataclass_fields__
        if name in data and name not in ("sizes", "vocabulary")
    }
    return GenerationDefaults(
        **plain,
        sizes=tuple(_size(size) for size in data.get("sizes", ())),
        vocabulary=tuple(str(word) for word in data.get("vocabulary", ())),
    )


def _size(size: object) -> tuple[int, ...]:
    if isinstance(size, dict):
        size = [size.get("width", 0), size.get("height", 0), size.get("num_frames", 1)]
    return tuple(int(part) for part in size) if isinstance(size, (list, tuple)) else ()
