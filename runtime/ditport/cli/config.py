"""`--config`: a JSON or YAML file with the options of the command line, which win over it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ditport.errors import UsageError
from ditport.options import check_values


def merged(
    values: Mapping[str, Any], config: str | None, classes: tuple[type, ...]
) -> dict[str, Any]:
    """The values of a command line over those of its config file."""
    if config is None:
        return dict(values)
    data = read(config)
    extra = data.pop("diffusers_kwargs", {})
    if not isinstance(extra, dict):
        raise UsageError(f"{config}: diffusers_kwargs must be a mapping, not {extra!r}.")
    return {**check_values(classes, data, config), "diffusers_kwargs": extra, **values}


def read(name: str) -> dict[str, Any]:
    """The mapping in a config file."""
    path = Path(name).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"The config file {name} cannot be read: {reason}.") from None
    try:
        data = _yaml(text) if path.suffix in (".yaml", ".yml") else json.loads(text)
    except ValueError as error:
        raise UsageError(f"The config file {name} cannot be parsed.", f"{error}.") from None
    if not isinstance(data, dict):
        raise UsageError(f"The config file {name} must hold a mapping of options.")
    return {str(key): value for key, value in data.items()}


def _yaml(text: str) -> object:
    import yaml  # type: ignore[import-untyped]  # huggingface_hub brings it

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error).replace("\n", " ")) from None
