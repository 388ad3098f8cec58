"""Upstream's mask strategy files: `{"step_layer_head": [frames, rows, columns]}`, in tiles.

FastVideo and sglang read the same file. Every step, layer and head that the file spans must have
its window: upstream leaves holes as None and fails in the middle of a generation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from polyattn.errors import InvalidOptions
from polyattn.sparse.options import Triple

KEY: Final = re.compile(r"(\d+)_(\d+)_(\d+)")


@dataclass(frozen=True)
class MaskStrategy:
    """A window per denoising step, layer and head."""

    name: str  # for messages: the path it was read from
    windows: tuple[tuple[tuple[Triple, ...], ...], ...]

    @property
    def steps(self) -> int:
        """How many denoising steps it is made for."""
        return len(self.windows)

    @property
    def layers(self) -> int:
        """How many self-attention layers it is made for."""
        return len(self.windows[0])

    @property
    def heads(self) -> int:
        """How many heads it is made for."""
        return len(self.windows[0][0])

    def to_json(self) -> dict[str, list[int]]:
        """The flat mapping that upstream reads."""
        return {
            f"{step}_{layer}_{head}": list(window)
            for step, layers in enumerate(self.windows)
            for layer, heads in enumerate(layers)
            for head, window in enumerate(heads)
        }


def is_mask_strategy(mapping: Mapping[str, object]) -> bool:
    """Whether a configuration is a mask strategy rather than options."""
    return bool(mapping) and all(KEY.fullmatch(key) for key in mapping)


def load(path: str | Path) -> MaskStrategy:
    """Read a file, once per content. Raises InvalidOptions."""
    file = Path(path).expanduser()
    try:
        changed = file.stat().st_mtime_ns
    except OSError as error:
        raise InvalidOptions(
            f"The mask strategy {file} cannot be read: {error.strerror}."
        ) from None
    return _load(file, changed)


@lru_cache(maxsize=8)
def _load(file: Path, _: int) -> MaskStrategy:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidOptions(
            f"The mask strategy {file} cannot be read: {error.strerror}."
        ) from None
    except ValueError as error:
        raise InvalidOptions(f"The mask strategy {file} is not JSON: {error}.") from None
    if not isinstance(data, dict):
        raise InvalidOptions(
            f"The mask strategy {file} must map step_layer_head to a window, "
            f"not be a {type(data).__name__}."
        )
    return parse(data, str(file))


def parse(data: Mapping[str, object], name: str) -> MaskStrategy:
    """A strategy from the flat mapping. Raises InvalidOptions naming the key that is wrong."""
    if not data:
        raise InvalidOptions(f"The mask strategy {name} is empty.")
    windows: dict[tuple[int, ...], Triple] = {}
    for key, value in data.items():
        found = KEY.fullmatch(key)
        if found is None:
            raise InvalidOptions(
                f"The mask strategy {name} has the key {key!r}; keys are STEP_LAYER_HEAD, "
                "such as 0_12_3."
            )
        windows[tuple(map(int, found.groups()))] = _window(key, value, name)
    steps, layers, heads = (max(key[axis] for key in windows) + 1 for axis in range(3))
    if len(windows) < steps * layers * heads:
        hole = next(
            f"{step}_{layer}_{head}"
            for step in range(steps)
            for layer in range(layers)
            for head in range(heads)
            if (step, layer, head) not in windows
        )
        raise InvalidOptions(
            f"The mask strategy {name} spans {steps} steps, {layers} layers and {heads} heads "
            f"but has no window for {hole}."
        )
    return MaskStrategy(
        name,
        tuple(
            tuple(
                tuple(windows[step, layer, head] for head in range(heads))
                for layer in range(layers)
            )
            for step in range(steps)
        ),
    )


def _window(key: str, value: object, name: str) -> Triple:
    sizes = value if isinstance(value, (list, tuple)) else ()
    if len(sizes) != 3 or any(
        not isinstance(n, int) or isinstance(n, bool) or n < 1 for n in sizes
    ):
        raise InvalidOptions(
            f"The mask strategy {name} has {value!r} at {key}; a window is three whole numbers "
            "of at least 1, in tiles: [frames, rows, columns]."
        )
    return (sizes[0], sizes[1], sizes[2])
