"""Forcing a backend from code, above every preference.

The function holds for the whole process, the context manager for its context only (a ContextVar:
other threads and tasks do not see it, and it never leaks out). The inner force wins. Both are
read at each call and are part of every lookup key, so neither outlives its scope in a cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from polyattn.preferences import Request, parse_backend

IN_CONTEXT: ContextVar[Request | None] = ContextVar("polyattn_forced", default=None)
in_process: Request | None = None


def global_force_attn_backend(backend: str | None) -> None:
    """Force `backend` at every site of this process; None lifts it. Raises UnknownName."""
    global in_process
    in_process = None if backend is None else parse_backend(backend)


@contextmanager
def global_force_attn_backend_context_manager(backend: str) -> Iterator[None]:
    """Force `backend` within this context; nests. Raises UnknownName."""
    token = IN_CONTEXT.set(parse_backend(backend))
    try:
        yield
    finally:
        IN_CONTEXT.reset(token)


def forced() -> Request | None:
    """The force in effect here, the context's before the process's."""
    return IN_CONTEXT.get() or in_process
