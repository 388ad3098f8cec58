"""`ditport inspect FILE`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

from ditport.errors import FileUnreadable
from ditport.media import images, video
from ditport.media.formats import format_of
from ditport.media.provenance import Provenance

COLUMNS: Final = ("component", "role", "backend", "implementation", "calls")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("file", metavar="FILE", nargs="+", help="files that ditport wrote")
    parser.add_argument("--json", action="store_true", help="one JSON object a file")
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Print the provenance of every file."""
    for index, name in enumerate(args.file):
        found = read(Path(name))
        if args.json:
            print(json.dumps({"file": name, **json.loads(found.to_json())}, indent=2))  # noqa: T201
        else:
            print(("\n" if index else "") + described(name, found))  # noqa: T201
    return 0


def read(path: Path) -> Provenance:
    """The provenance of a file. Raises FileUnreadable."""
    if not path.is_file():
        raise FileUnreadable(f"There is no file {path}.")
    container = format_of(path)
    if container is None:
        raise FileUnreadable(f"{path} is no format that ditport writes.")
    try:
        found = video.read(path) if container == "mp4" else images.read(path)
    except (OSError, ValueError) as error:
        raise FileUnreadable(f"{path} cannot be read.", f"{error}.") from None
    if found is None:
        raise FileUnreadable(
            f"{path} holds no record of how it was made.",
            "",
            "Other programs often drop it when they save or send a file.",
        )
    return found


def described(name: str, found: Provenance) -> str:
    """Provenance in words."""
    lines = [name]
    for title, values in (
        ("request", found.request),
        ("model", found.model),
        ("platform", found.platform),
        ("versions", found.versions),
    ):
        lines.append(f"{title}:")
        width = max(map(len, values), default=0)
        lines += [f"  {key:{width}}  {value}" for key, value in values.items()]
    if found.attention:
        lines.append("attention that ran:")
        lines += _table(found.attention.get("attention", ()))
    return "\n".join(lines)


def _table(rows: Any) -> list[str]:
    cells = [[str(row.get(column, "")) for column in COLUMNS] for row in rows]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *cells, strict=True)]
    lines = [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (list(COLUMNS), *cells)
    ]
    return lines + [
        f"  {row['component']} ({row['role']}): {row['requested']} was requested: {row['reason']}"
        for row in rows
        if row.get("reason")
    ]
