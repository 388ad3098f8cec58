"""From requests to paths. The same request gets the same name, another one another name."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from ditport.errors import OutputRefused
from ditport.generation.request import Request
from ditport.media.formats import SUFFIXES, OutputSettings, format_of


def plan_paths(
    settings: OutputSettings, requests: Sequence[Request], model: str
) -> tuple[Path, ...]:
    """A path for every request, all different. Raises OutputRefused for a suffix that lies."""
    given = given_path(settings)
    paths: list[Path] = []
    for request in requests:
        if request.file_name is not None:
            path = _with_suffix(Path(settings.output_path) / request.file_name, request)
        elif given is not None:
            path = _with_suffix(given, request)
        else:
            path = Path(settings.output_path) / _name(request, model)
        paths.append(path)
    paths = _numbered(paths)
    for path, request in zip(paths, requests, strict=True):
        if request.is_video and format_of(path) != "mp4":
            raise OutputRefused(
                f"{path} cannot hold a video.",
                f"{request.num_frames} frames are asked for, and {path.suffix} is one picture.",
                "Give a name ending in .mp4, or --num-frames 1.",
            )
    return tuple(paths)


def given_path(settings: OutputSettings) -> Path | None:
    """The file that the options name, or None if they name a folder."""
    if settings.output_file_path is not None:
        return Path(settings.output_file_path).expanduser()
    path = Path(settings.output_path).expanduser()
    if settings.output_file_name is not None:
        return path / settings.output_file_name
    if path.is_dir() or str(settings.output_path).endswith("/"):
        return None
    if path.suffix and format_of(path) is None and not path.exists() and len(path.suffix) <= 5:
        _refuse_suffix(path)
    return path if format_of(path) else None


def _with_suffix(path: Path, request: Request) -> Path:
    if format_of(path):
        return path
    if path.suffix and re.fullmatch(r"\.[A-Za-z][A-Za-z0-9]{1,4}", path.suffix):
        _refuse_suffix(path)
    return path.with_name(path.name + (".mp4" if request.is_video else ".png"))


def _refuse_suffix(path: Path) -> None:
    raise OutputRefused(
        f"{path.name} cannot be written.",
        f"{path.suffix} is no format that is known here.",
        f"Known: {', '.join(SUFFIXES)}.",
    )


def _name(request: Request, model: str) -> str:
    plain = unicodedata.normalize("NFKD", request.prompt).encode("ascii", "ignore").decode()
    slug = "_".join(re.findall(r"[A-Za-z0-9]+", plain.lower()))[:60].strip("_") or "output"
    settings = json.dumps([model, request.to_json()], sort_keys=True, default=str)
    digest = hashlib.sha256(settings.encode()).hexdigest()[:8]
    suffix = ".mp4" if request.is_video else ".png"
    return f"{slug}_seed{request.seed}_{digest}{suffix}"


def _numbered(paths: list[Path]) -> list[Path]:
    counts = {path: paths.count(path) for path in paths}
    seen: dict[Path, int] = {}
    numbered = []
    for path in paths:
        if counts[path] > 1:
            seen[path] = seen.get(path, 0) + 1
            path = path.with_name(f"{path.stem}-{seen[path]}{path.suffix}")
        numbered.append(path)
    return numbered
