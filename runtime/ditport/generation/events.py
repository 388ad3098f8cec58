"""What happens while a request is served, as data. Whoever asked decides how to show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """Base of all events."""


@dataclass(frozen=True)
class Note(Event):
    """Something the user should know; nothing is wrong."""

    text: str


@dataclass(frozen=True)
class Downloading(Event):
    """Bytes of a model that have arrived, of all that are wanted."""

    model: str
    done: int
    total: int


@dataclass(frozen=True)
class Downloaded(Event):
    """All files of a model are there."""

    model: str
    revision: str
    total: int


@dataclass(frozen=True)
class Loading(Event):
    """A component is about to be loaded; `component` is None for the libraries themselves."""

    component: str | None
    index: int
    total: int


@dataclass(frozen=True)
class Loaded(Event):
    """The pipeline stands."""

    pipeline: str
    seconds: float


@dataclass(frozen=True)
class Started(Event):
    """One output is about to be generated."""

    index: int
    outputs: int
    prompt: str
    seed: int


@dataclass(frozen=True)
class Step(Event):
    """A denoising step has been done."""

    index: int
    outputs: int
    step: int
    steps: int


@dataclass(frozen=True)
class Encoding(Event):
    """The frames are there and are being written."""

    path: str
    frames: int


@dataclass(frozen=True)
class Saved(Event):
    """A file stands under its final name."""

    path: str


Sink = Callable[[Event], None]


def ignore(event: Event) -> None:
    """A sink that shows nothing."""
