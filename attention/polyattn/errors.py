"""One error class per cause. Every message holds cause, evidence and remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AttentionError(Exception):
    """Base of everything that polyattn raises on purpose."""


class UnknownName(AttentionError):
    """A name is not in its vocabulary."""

    def __init__(self, what: str, given: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(given.lower(), names, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        super().__init__(f"Unknown {what} {given!r}.{hint} Known: {', '.join(names) or 'none'}.")
        self.given = given
        self.nearest = near[0] if near else None


class InvalidOptions(AttentionError):
    """Attention options cannot be read, or hold a value that no backend takes."""


class BackendUnavailable(AttentionError):
    """An explicit request that must not be substituted cannot be served on this machine."""


class SubstitutionRefused(AttentionError):
    """A selection differs from the request and `--on-substitution error` is set."""


class UnsupportedCall(AttentionError):
    """No implementation at all can serve a call."""


class BypassedAttention(AttentionError):
    """The self-check saw attention that does not go through polyattn."""


class NonFiniteOutput(AttentionError):
    """A lossy backend made NaN or infinite numbers, and `--on-substitution error` is set."""


class NotAttached(AttentionError):
    """detach() or report() on something that attach() did not produce or that was detached."""


class InvalidFacts(AttentionError):
    """A facts file is not one of ours, or of a version that is not understood."""
