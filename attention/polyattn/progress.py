"""Where a generation stands, for backends whose work depends on the denoising step."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from polyattn.sparse.search import Recorder


class Follower(Protocol):
    """What chooses anew when the first steps, which an option makes dense, begin or end."""

    def first_steps(self, running: bool) -> None:
        """They run now, or no longer."""


class Progress:
    """The denoising step that is running, counted from 0, and how many there will be.

    Kept by the integration; `steps` is None where nothing has said it. `dense_steps` is how many
    first steps an option of a backend in use makes dense. One running request per attached
    pipeline, as everywhere.
    """

    def __init__(self) -> None:
        self.steps: int | None = None
        self.recorder: Recorder | None = None  # measures windows instead of using them
        self.in_first_steps = False
        self._step = 0
        self._dense_steps = 0
        self._followers: weakref.WeakSet[Follower] = weakref.WeakSet()

    @property
    def step(self) -> int:
        """The step that is running, from 0."""
        return self._step

    @step.setter
    def step(self, step: int) -> None:
        self._step = step
        self._tell()

    @property
    def dense_steps(self) -> int:
        """How many first steps are dense."""
        return self._dense_steps

    @dense_steps.setter
    def dense_steps(self, steps: int) -> None:
        self._dense_steps = steps
        self._tell()

    def follow(self, follower: Follower) -> None:
        """Tell `follower`, while it lives, when the first steps begin or end."""
        self._followers.add(follower)
        follower.first_steps(self.in_first_steps)

    def _tell(self) -> None:
        running = self._step < self._dense_steps
        if running != self.in_first_steps:
            self.in_first_steps = running
            for follower in self._followers:
                follower.first_steps(running)
