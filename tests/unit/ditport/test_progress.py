"""Progress: one redrawn line on a terminal, few lines elsewhere, nothing when quiet."""

from __future__ import annotations

import io

import pytest

from ditport.cli.progress import Progress
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

EVENTS: list[Event] = [
    Note("be aware"),
    Downloading("a/b", 5_000_000, 10_000_000),
    Downloaded("a/b", "0123456789abcdef", 10_000_000),
    Loading(None, 0, 3),
    Loading("transformer", 1, 3),
    Loaded("WanPipeline", 1.5),
    Started(0, 2, "a red circle", 42),
    Step(0, 2, 1, 8),
    Encoding("a.mp4", 13),
    Saved("a.mp4"),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, *, quiet: bool = False) -> str:
    with Progress(stream, quiet=quiet) as progress:
        for event in EVENTS:
            progress(event)
    return stream.getvalue()


def test_a_terminal_sees_a_bar_and_keeps_the_lines() -> None:
    text = shown(Terminal())
    assert "\r" in text
    assert "1/8" in text
    assert "downloading a/b [############............] 5/10 MB" in text
    assert text.endswith("wrote a.mp4\n")


def test_a_log_sees_plain_lines() -> None:
    text = shown(io.StringIO())
    assert "\r" not in text
    assert "note: be aware\n" in text
    assert "downloaded a/b at 0123456789ab (10 MB)" in text
    assert "generating 1/2: a red circle (seed 42)" in text
    assert "1/8" not in text  # steps would flood a log


def test_a_long_run_still_says_something(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 7))
    monkeypatch.setattr("ditport.cli.progress.time.monotonic", lambda: float(next(clock)))
    stream = io.StringIO()
    progress = Progress(stream)
    for step in range(1, 9):
        progress(Step(0, 1, step, 8))
    assert 2 <= stream.getvalue().count("steps") < 8


def test_quiet_is_silent() -> None:
    assert shown(Terminal(), quiet=True) == ""
