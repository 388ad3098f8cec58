"""Where a generation stands, for backends whose work depends on the denoising step."""

from __future__ import annotations


class Progress:
    """The denoising step that is running, counted from 0, and how many there will be.

    Kept by the integration; `steps` is None where nothing has said it. One running request per
    attached pipeline, as everywhere.
    """

    __slots__ = ("step", "steps")

    def __init__(self) -> None:
        self.step = 0
        self.steps: int | None = None
