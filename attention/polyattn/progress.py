"""Where a generation stands, for backends whose work depends on the denoising step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polyattn.sparse.search import Recorder


class Progress:
    """The denoising step that is running, counted from 0, and how many there will be.

    Kept by the integration; `steps` is None where nothing has said it. One running request per
    attached pipeline, as everywhere.
    """

    __slots__ = ("recorder", "step", "steps")

    def __init__(self) -> None:
        self.step = 0
        self.steps: int | None = None
        self.recorder: Recorder | None = None  # measures windows instead of using them
