"""Events as a progress line on a terminal, or as plain lines anywhere else."""

from __future__ import annotations

import shutil
import time
from types import TracebackType
from typing import Final, TextIO

from ditport.generation.events import (
    Downloaded,
    Downloading,
    Encoding,
    Event,
    Loaded,
    Loading,
    Note,
    Saved,
    Started,
    Step,
)

PLAIN_SECONDS: Final = 10.0  # between two plain lines about the same thing
BAR: Final = 24


class Progress:
    """A sink. On a terminal one line is redrawn; elsewhere (logs, CI) lines are few."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self.stream = stream
        self.quiet = quiet
        self.live = stream.isatty()
        self._drawn = False
        self._last = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._clear()

    def __call__(self, event: Event) -> None:
        """Show an event."""
        if self.quiet:
            return
        match event:
            case Note(text):
                self._line(f"note: {text}")
            case Downloading(model, done, total):
                share = done / total if total else 0.0
                self._moving(
                    f"downloading {model}", share, f"{done / 1e6:.0f}/{total / 1e6:.0f} MB"
                )
            case Downloaded(model, revision, total):
                self._line(f"downloaded {model} at {revision[:12]} ({total / 1e6:.0f} MB)")
            case Loading(None, _, _):
                self._moving("loading", 0.0, "libraries")
            case Loading(component, index, total):
                self._moving("loading", index / max(total, 1), component or "")
            case Loaded(pipeline, seconds):
                self._line(f"loaded {pipeline} in {seconds:.1f} s")
            case Started(index, outputs, prompt, seed):
                which = f" {index + 1}/{outputs}" if outputs > 1 else ""
                self._line(f"generating{which}: {_short(prompt)} (seed {seed})")
            case Step(index, outputs, step, steps):
                which = f" {index + 1}/{outputs}" if outputs > 1 else ""
                self._moving(f"steps{which}", step / max(steps, 1), f"{step}/{steps}")
            case Encoding(path, frames):
                self._moving("writing", 1.0, f"{frames} frames")
            case Saved(path):
                self._line(f"wrote {path}")

    def _moving(self, what: str, share: float, detail: str) -> None:
        if not self.live:
            now = time.monotonic()
            if now - self._last >= PLAIN_SECONDS:
                self._line(f"{what} {detail}")
            return
        full = round(BAR * min(max(share, 0.0), 1.0))
        text = f"{what} [{'#' * full}{'.' * (BAR - full)}] {detail}"
        width = shutil.get_terminal_size().columns - 1
        self.stream.write(f"\r{text[:width]:{width}}")
        self.stream.flush()
        self._drawn = True

    def _line(self, text: str) -> None:
        self._clear()
        self._last = time.monotonic()
        self.stream.write(text + "\n")
        self.stream.flush()

    def _clear(self) -> None:
        if self._drawn:
            width = shutil.get_terminal_size().columns - 1
            self.stream.write(f"\r{'':{width}}\r")
            self._drawn = False


def _short(text: str, length: int = 60) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
