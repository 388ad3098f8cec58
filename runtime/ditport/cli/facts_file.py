"""`--facts FILE`: judge another machine by the facts that a probe wrote there."""

from __future__ import annotations

import sys
from pathlib import Path

from ditport.errors import UsageError
from polyattn.errors import InvalidFacts
from polyattn.facts import PlatformFacts


def read_facts(path: str) -> PlatformFacts:
    """The facts in a file, or on standard input for `-`; raises UsageError."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"The facts file {path} cannot be read: {error.strerror}.",
            "",
            "`ditport probe --json > FILE` writes one.",
        ) from None
    except UnicodeDecodeError:
        raise UsageError(
            f"The facts file {path} is not text.", "", "`ditport probe --json > FILE` writes one."
        ) from None
    try:
        return PlatformFacts.from_json(text)
    except InvalidFacts as error:
        raise UsageError(f"The facts file {path} cannot be used.", str(error)) from None
