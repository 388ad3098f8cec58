"""Which site is running: a cached subclass of its processor (or module) says so.

Forward hooks with a site number break regional compilation (facts/hot-path.md), an attribute that
a subclass's `__call__` publishes does not. The subclass keeps its base's name and signature,
because diffusers decides by both.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from polyattn.layers import LocalAttention


class Current(threading.local):
    """The site whose code runs in this thread; None outside attached sites."""

    def __init__(self) -> None:
        # Runs once per thread. A class attribute would not do: torch.compile guards on the
        # instance having `layer` or not, and setting it breaks that guard.
        self.layer: LocalAttention | None = None


CURRENT = Current()

_LAYER = "_polyattn_layer"


@cache
def _attached_class(base: type, entry: str) -> type:
    """A subclass of `base` whose method `entry` runs with its site current. One per class."""
    original: Callable[..., Any] = getattr(base, entry)

    @functools.wraps(original)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        outer = CURRENT.layer
        CURRENT.layer = self._polyattn_layer
        try:
            return original(self, *args, **kwargs)
        finally:
            CURRENT.layer = outer

    names = {
        entry: run,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
    }
    return type(base.__name__, (base,), names)


def identify(target: object, entry: str, layer: LocalAttention) -> Callable[[], None]:
    """Make `target`'s method `entry` announce `layer`. Returns what undoes it.

    The object keeps its identity and state; only its class changes.
    """
    base: Any = type(target)
    object.__setattr__(target, _LAYER, layer)
    object.__setattr__(target, "__class__", _attached_class(base, entry))

    def undo() -> None:
        object.__setattr__(target, "__class__", base)
        object.__delattr__(target, _LAYER)

    return undo


def is_identified(target: object) -> bool:
    """Whether `identify` holds for the object now."""
    return hasattr(target, _LAYER)
