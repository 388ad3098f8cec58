"""`ditport models`."""

from __future__ import annotations

import argparse
import dataclasses
import json

from ditport.models.cache import CachedModel, cached_models


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--json", action="store_true", help="a JSON list")
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """List what can be generated with offline."""
    found = cached_models()
    if args.json:
        print(json.dumps([dataclasses.asdict(model) for model in found], indent=2))  # noqa: T201
    else:
        print(table(found))  # noqa: T201
    return 0


def table(models: tuple[CachedModel, ...]) -> str:
    """Aligned rows."""
    head = ("model", "revision", "size", "pipeline", "state")
    body = [
        (
            model.name,
            " ".join((model.revision[:12], *model.refs)).strip() or "-",
            f"{model.size_bytes / 1e6:,.0f} MB",
            model.pipeline or "-",
            model.problem or "complete",
        )
        for model in models
    ]
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *body)
    )
