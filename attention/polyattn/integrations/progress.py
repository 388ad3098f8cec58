"""Which denoising step is running, told by the pipeline's scheduler.

Every pipeline calls `scheduler.set_timesteps` once and `scheduler.step` after each step, whether
or not it takes callbacks. The scheduler's class is replaced by a subclass of it (see identity.py),
which a copy of the scheduler takes along without pointing back to the original's methods; LTX-2
makes such a copy for its audio.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from polyattn.progress import Progress

_PROGRESS: Final = "_polyattn_progress"


def follow(pipeline: Any, progress: Progress) -> Callable[[], None]:
    """Keep `progress` while the pipeline runs. Returns what undoes it.

    A scheduler that calls for several model evaluations per step (Heun) counts each.
    """
    scheduler = getattr(pipeline, "scheduler", None)
    methods = ("set_timesteps", "step")
    if scheduler is None or not all(callable(getattr(scheduler, name, None)) for name in methods):
        return lambda: None
    base: Any = type(scheduler)
    scheduler.__class__ = _following(base)
    object.__setattr__(scheduler, _PROGRESS, progress)

    def undo() -> None:
        scheduler.__class__ = base
        object.__delattr__(scheduler, _PROGRESS)

    return undo


@cache
def _following(base: type) -> type:
    @functools.wraps(base.set_timesteps)  # type: ignore[attr-defined]  # follow() looked
    def set_timesteps(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = base.set_timesteps(self, *args, **kwargs)  # type: ignore[attr-defined]
        timesteps = getattr(self, "timesteps", None)
        self._polyattn_progress.step = 0
        self._polyattn_progress.steps = None if timesteps is None else len(timesteps)
        return result

    @functools.wraps(base.step)  # type: ignore[attr-defined]
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = base.step(self, *args, **kwargs)  # type: ignore[attr-defined]
        self._polyattn_progress.step += 1
        return result

    names = {
        "set_timesteps": set_timesteps,
        "step": step,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
    }
    return type(base.__name__, (base,), names)
