"""From measured losses to a mask strategy: which window each head gets at each step.

Losses are what polyattn.sparse.search measures: how far a window's output is from full
attention's, per denoising step, layer and head. Nothing here imports torch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from polyattn.errors import InvalidOptions
from polyattn.sparse.mask_strategy import MaskStrategy
from polyattn.sparse.options import Triple

FORMAT: Final = 1


@dataclass(frozen=True)
class Losses:
    """Mean squared distances from full attention. `l2[step][layer][head][candidate]`."""

    grid: str
    tile: Triple
    full: Triple  # the window that covers the grid
    candidates: tuple[Triple, ...]
    densities: tuple[float, ...]  # of the candidates
    l2: tuple[tuple[tuple[tuple[float, ...], ...], ...], ...]

    @property
    def key(self) -> tuple[Any, ...]:
        """What two measurements must share to be averaged."""
        shape = (len(self.l2), len(self.l2[0]), len(self.l2[0][0]))
        return self.grid, self.tile, self.candidates, shape

    def write(self, path: Path) -> None:
        """Write as JSON, under the final name only when complete."""
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps({"format": FORMAT, **vars(self)}), encoding="utf-8")
        part.replace(path)

    @classmethod
    def read(cls, path: Path) -> Losses:
        """Read what `write` wrote. Raises InvalidOptions."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if data.pop("format") != FORMAT:
                raise ValueError("another format")
            return cls(**{name: _frozen(value) for name, value in data.items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidOptions(
                f"{path} holds no losses that `ditport sta search` wrote: {error}."
            ) from None


@dataclass(frozen=True)
class Tuned:
    """A strategy, the share of query-key pairs that it computes, and its mean loss."""

    strategy: MaskStrategy
    density: float
    loss: float


def read_all(folder: Path) -> list[tuple[Path, Losses]]:
    """Every losses file of a folder. Raises InvalidOptions where there is none."""
    paths = sorted(folder.glob("losses_*.json"))
    if not paths:
        raise InvalidOptions(f"{folder} holds no losses_*.json; `ditport sta search` writes them.")
    return [(path, Losses.read(path)) for path in paths]


def average(measured: Sequence[tuple[Path, Losses]]) -> Losses:
    """The mean of several measurements. Raises InvalidOptions where they do not belong together."""
    (first_path, first), *others = measured
    for path, losses in others:
        if losses.key != first.key:
            raise InvalidOptions(
                f"{path} and {first_path} were measured on different grids, tiles, windows, steps "
                "or models; tune them apart."
            )
    every = [losses.l2 for _, losses in measured]
    return Losses(
        first.grid,
        first.tile,
        first.full,
        first.candidates,
        first.densities,
        tuple(
            tuple(
                tuple(
                    tuple(sum(parts) / len(every) for parts in zip(*heads, strict=True))
                    for heads in zip(*layers, strict=True)
                )
                for layers in zip(*steps, strict=True)
            )
            for steps in zip(*every, strict=True)
        ),
    )


def tune(losses: Losses, skip_steps: int, target_density: float | None, name: str) -> Tuned:
    """Choose a window for every step, layer and head; the first `skip_steps` attend in full.

    Without a target, the candidate of the least loss, as upstream. With one, the windows (full
    ones included) of the least total loss whose mean density over all steps is at most the target;
    raises InvalidOptions where the skipped steps or the candidates cannot reach it.
    """
    if target_density is None:
        return _chosen(losses, skip_steps, None, name)
    least = _chosen(losses, skip_steps, float("inf"), name)
    if least.density > target_density:
        raise InvalidOptions(
            f"A density of {target_density:g} cannot be reached: with {skip_steps} steps in full "
            f"and the smallest windows it is {least.density:.3f}."
        )
    # The price of density that just keeps the target: losses fall and densities rise with less.
    low, high = 0.0, 1.0
    while _chosen(losses, skip_steps, high, name).density > target_density:
        low, high = high, high * 4
    for _ in range(60):
        middle = (low + high) / 2
        if _chosen(losses, skip_steps, middle, name).density > target_density:
            low = middle
        else:
            high = middle
    return _chosen(losses, skip_steps, high, name)


def _chosen(losses: Losses, skip_steps: int, price: float | None, name: str) -> Tuned:
    options = list(zip(losses.candidates, losses.densities, strict=True))
    full = (losses.full, 1.0, 0.0)
    total_density = total_loss = 0.0
    count = 0
    steps = []
    for step, layers in enumerate(losses.l2):
        rows = []
        for heads in layers:
            row = []
            for values in heads:
                window, density, loss = full
                if step >= skip_steps:
                    choices = [(w, d, v) for (w, d), v in zip(options, values, strict=True)]
                    window, density, loss = _best(choices, full, price)
                row.append(window)
                total_density += density
                total_loss += loss
                count += 1
            rows.append(tuple(row))
        steps.append(tuple(rows))
    return Tuned(MaskStrategy(name, tuple(steps)), total_density / count, total_loss / count)


Choice = tuple[Triple, float, float]  # window, density, loss


def _best(choices: list[Choice], full: Choice, price: float | None) -> Choice:
    if price is None:
        return min(choices, key=lambda choice: choice[2])
    if price == float("inf"):
        return min(choices, key=lambda choice: (choice[1], choice[2]))
    return min([*choices, full], key=lambda choice: (choice[2] + price * choice[1], choice[1]))


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
