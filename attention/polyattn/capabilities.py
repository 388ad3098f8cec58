"""The rows: one `Implementation` per kernel that serves a backend, each with its `Needs`.

Everything that lists, explains, tests or documents backends iterates `rows()`. What a kernel
cannot do is a need here, never an `if` in its adapter. Limits are cited beside each row; what no
run of ours has confirmed on hardware carries the evidence it rests on.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.metadata import entry_points
from typing import Final

from polyattn.dense_rows import DENSE
from polyattn.errors import UnknownName
from polyattn.implementation import Implementation, Needs
from polyattn.sparse_rows import SPARSE
from polyattn.vocabulary import ENTRY_POINT_GROUP

__all__ = ["BUILTIN", "Implementation", "Needs", "backend_names", "row", "rows", "rows_of"]

log = logging.getLogger("polyattn")

BUILTIN: Final = (*DENSE, *SPARSE)


@cache
def rows() -> tuple[Implementation, ...]:
    """Our rows, then those that other distributions register.

    An entry point of the group `polyattn.implementations` names an `Implementation` or a tuple
    of them; it must not import torch. One that does not load is left out with a warning: a broken
    package must not stop those who do not want it. A name that is already taken raises ValueError.
    """
    found = list(BUILTIN)
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
        try:
            loaded = entry.load()
        except Exception as error:  # whatever the other distribution raises at import
            log.warning(
                "%s registers attention implementations as %s, which do not load: %s: %s",
                entry.dist.name if entry.dist else "a package",
                entry.value,
                type(error).__name__,
                error,
            )
            continue
        found += [loaded] if isinstance(loaded, Implementation) else list(loaded)
    names = [row.name for row in found]
    taken = sorted({name for name in names if names.count(name) > 1})
    if taken:
        raise ValueError(f"Several implementations are called {', '.join(taken)}.")
    return tuple(found)


def backend_names() -> tuple[str, ...]:
    """Every backend name that a row serves, in row order."""
    return tuple(dict.fromkeys(str(row.backend) for row in rows()))


def rows_of(backend: str) -> tuple[Implementation, ...]:
    """The implementations of a backend, in row order; raises UnknownName."""
    found = tuple(row for row in rows() if row.backend == backend)
    if not found:
        raise UnknownName("attention backend", backend, backend_names())
    return found


def row(name: str) -> Implementation:
    """The implementation of that name; raises UnknownName."""
    for candidate in rows():
        if candidate.name == name:
            return candidate
    raise UnknownName("attention implementation", name, (r.name for r in rows()))
