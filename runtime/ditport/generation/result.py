"""What came out: files, seconds, what attention ran. JSON for machines, a summary for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from polyattn.executions import ExecutionReport


@dataclass(frozen=True)
class OutputFile:
    """One output. `path` is None when nothing was to be saved."""

    path: str | None
    prompt: str
    seed: int
    width: int
    height: int
    frames: int
    fps: int | None
    size_bytes: int
    seconds: float


@dataclass(frozen=True)
class Result:
    """Everything that one run made."""

    files: tuple[OutputFile, ...]
    model: Mapping[str, Any] = field(hash=False)
    device: str = "cpu"
    dtype: str = "float32"
    seconds: Mapping[str, float] = field(default_factory=dict, hash=False)
    attention: ExecutionReport | None = None
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "files": [vars(file) for file in self.files],
            "model": dict(self.model),
            "device": self.device,
            "dtype": self.dtype,
            "seconds": {stage: round(spent, 3) for stage, spent in self.seconds.items()},
            "attention": self.attention.to_json() if self.attention else None,
            "notes": list(self.notes),
            "versions": dict(self.versions),
        }
