"""Where a file came from: prompt, settings, model, versions and what attention ran.

Nothing here depends on the time or the place of a run, so the same request gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

KEY: Final = "ditport"  # the PNG chunk, and the marker by which our JSON is recognised
SCHEMA: Final = 1


@dataclass(frozen=True)
class Provenance:
    """What `ditport inspect` reads back."""

    request: Mapping[str, Any] = field(hash=False)
    model: Mapping[str, Any] = field(hash=False)
    versions: Mapping[str, str] = field(hash=False)
    platform: Mapping[str, Any] = field(hash=False)
    attention: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def prompt(self) -> str:
        """The prompt, as other programs will show it."""
        return str(self.request.get("prompt", ""))

    def to_json(self) -> str:
        """One line of ASCII, keys sorted: fits every container and never varies."""
        return json.dumps(
            {
                KEY: SCHEMA,
                "request": self.request,
                "model": self.model,
                "versions": self.versions,
                "platform": self.platform,
                "attention": self.attention,
            },
            sort_keys=True,
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> Provenance | None:
        """Read what `to_json` wrote, or None if it is something else."""
        try:
            data = json.loads(text)
        except ValueError:
            return None
        if not isinstance(data, dict) or data.get(KEY) != SCHEMA:
            return None
        return cls(
            request=data.get("request") or {},
            model=data.get("model") or {},
            versions=data.get("versions") or {},
            platform=data.get("platform") or {},
            attention=data.get("attention"),
        )
