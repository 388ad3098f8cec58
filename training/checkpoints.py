"""Checkpoints that a killed run leaves whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def save(state: dict[str, Any], path: Path) -> None:
    """Under a temporary name first: a run that is killed while saving loses nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    torch.save(state, temporary)
    temporary.replace(path)


def load(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state
