"""`ditport backends`: every attention backend, usable here or why not."""

from __future__ import annotations

import argparse
import json
import sys

from ditport.cli.facts_file import read_facts
from ditport.errors import UsageError
from polyattn.probe import static_facts
from polyattn.probe.support import as_data, listing, markdown


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--facts",
        metavar="FILE",
        help="judge the machine that this file describes (written by ditport probe --json; "
        "- is standard input)",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print as JSON")
    form.add_argument(
        "--markdown", action="store_true", help="print the support matrix of the documentation"
    )


def run(args: argparse.Namespace) -> int:
    """Print and return 0."""
    if args.markdown:
        if args.facts:
            raise UsageError("--markdown lists every machine; it takes no --facts.")
        text = markdown()
    else:
        facts = read_facts(args.facts) if args.facts else static_facts()
        text = json.dumps(as_data(facts), indent=2) if args.json else listing(facts)
    sys.stdout.write(text + "\n")
    return 0
