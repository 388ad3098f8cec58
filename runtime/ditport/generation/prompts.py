"""Prompt files: a prompt a line, or JSON lines with settings of their own."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ditport.errors import PromptFileRefused, UsageError
from ditport.generation.request import SamplingSettings
from ditport.options import check_values

OUTPUT_KEYS = ("output_file_name",)


@dataclass(frozen=True)
class PromptLine:
    """One line's settings, over those of the command line."""

    number: int
    settings: SamplingSettings
    file_name: str | None = None


def read_prompts(path: str, base: SamplingSettings) -> tuple[PromptLine, ...]:
    """Read a prompt file. Raises PromptFileRefused naming the line that is wrong."""
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PromptFileRefused(f"The prompt file {path} cannot be read: {reason}.") from None
    numbered = [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not numbered:
        raise PromptFileRefused(f"The prompt file {path} holds no prompts.")
    as_json = Path(path).suffix in (".jsonl", ".ndjson") or numbered[0][1].startswith("{")
    if not as_json:
        return tuple(
            PromptLine(number, dataclasses.replace(base, prompt=line)) for number, line in numbered
        )
    return tuple(_json_line(path, number, line, base) for number, line in numbered)


def _json_line(path: str, number: int, line: str, base: SamplingSettings) -> PromptLine:
    where = f"{path}, line {number}"
    try:
        data = json.loads(line)
    except ValueError as error:
        raise PromptFileRefused(f"{where} is not JSON.", f"{error}.") from None
    if isinstance(data, str):
        data = {"prompt": data}
    if not isinstance(data, dict):
        raise PromptFileRefused(f"{where} is not a JSON object.")
    name = data.pop("output_file_name", None)
    extra = data.pop("diffusers_kwargs", {})
    if name is not None and (not isinstance(name, str) or not name or "/" in name):
        raise PromptFileRefused(f"{where}: output_file_name must be a file name, not {name!r}.")
    if not isinstance(extra, dict):
        raise PromptFileRefused(f"{where}: diffusers_kwargs must be a mapping.")
    try:
        values: dict[str, Any] = check_values((SamplingSettings,), data, where)
    except UsageError as error:
        raise PromptFileRefused(error.cause, error.evidence, error.remedy) from None
    if "prompt_file" in values:
        raise PromptFileRefused(f"{where}: a prompt file cannot name another one.")
    if not values.get("prompt"):
        raise PromptFileRefused(f"{where} has no prompt.")
    if {"height", "width"} & values.keys() and "size" not in values:
        values["size"] = None  # the line's own size wins over the command line's --size
    elif "size" in values:
        values = {"height": None, "width": None, **values}
    merged = {**base.diffusers_kwargs, **extra}
    settings = dataclasses.replace(base, **values, diffusers_kwargs=merged)
    return PromptLine(number, settings, name)
