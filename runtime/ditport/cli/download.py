"""`ditport download MODEL`."""

from __future__ import annotations

import argparse
import json
import sys

from ditport.cli.progress import Progress
from ditport.errors import UsageError
from ditport.models.folder import describe
from ditport.models.locate import locate
from ditport.models.source import ModelSettings


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("model", metavar="MODEL", help="a Hugging Face id (owner/name)")
    parser.add_argument("--revision", metavar="REVISION", help="branch, tag or commit")
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    parser.add_argument("--quiet", action="store_true", help="print nothing but the folder")
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    parser.epilog = (
        "HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_OFFLINE are honoured. A download that breaks\n"
        "off is resumed by the next try."
    )


def run(args: argparse.Namespace) -> int:
    """Fetch a model, and look whether it is whole."""
    with Progress(sys.stderr, quiet=args.quiet) as progress:
        source = locate(ModelSettings(args.model, args.revision), progress)
    if source.kind != "hub":
        raise UsageError(f"{args.model} is on the disk already: {source.path}.")
    model = describe(source, trust_remote_code=True)  # nothing is run here
    if args.json:
        found = {
            "model": source.name,
            "revision": source.revision,
            "path": str(source.path),
            "pipeline": model.pipeline,
        }
        print(json.dumps(found, indent=2))  # noqa: T201
    elif args.quiet:
        print(source.path)  # noqa: T201
    else:
        print(f"{source.name} at {source.revision} ({model.pipeline})\n{source.path}")  # noqa: T201
    return 0
