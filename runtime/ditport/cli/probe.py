"""`ditport probe`: what this machine is, what is installed, what really runs."""

from __future__ import annotations

import argparse
import sys

from ditport.cli.facts_file import read_facts
from polyattn.probe import gather
from polyattn.probe.describe import description
from polyattn.vocabulary import ProbeLevel


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--level",
        choices=[str(level) for level in ProbeLevel],
        default=str(ProbeLevel.STATIC),
        help="static reads files (default), import also imports every package, live also runs "
        "every kernel on small tensors; both do so in processes of their own",
    )
    source.add_argument(
        "--facts", metavar="FILE", help="show the facts in this file instead (- is standard input)"
    )
    parser.add_argument("--json", action="store_true", help="print the facts as JSON")


def run(args: argparse.Namespace) -> int:
    """Probe, print, and return 0: a broken package is a finding, not a failure."""
    facts = read_facts(args.facts) if args.facts else gather(ProbeLevel(args.level))
    sys.stdout.write((facts.to_json() if args.json else description(facts)) + "\n")
    return 0
