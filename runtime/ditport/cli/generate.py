"""`ditport generate`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from ditport.cli.parser import Parser
from ditport.generation.settings import Settings
from ditport.options import add_options, build

TITLES: Final = {
    "sampling": "what to generate",
    "output": "output",
    "model": "model",
    "lora": "LoRA",
    "device": "device",
    "precision": "precision",
    "memory": "memory",
    "compilation": "speed",
    "attention": "attention",
    "later": "later",
}

EXAMPLES: Final = """examples:
  ditport generate --prompt "a red circle moving right on a black background"
  ditport generate --prompt "a green star" --num-frames 1 --output-path star.png
  ditport generate --model-path Wan-AI/Wan2.1-T2V-1.3B-Diffusers --prompt "a curious raccoon" \\
      --height 480 --width 832 --attention-backend fa
  ditport generate --prompt-file prompts.jsonl --output-path outputs/ --json
"""


def settings_classes() -> dict[str, type]:
    """The settings class of every group, by field name of Settings."""
    return {name: type(value) for name, value in vars(Settings()).items()}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add every settings class's group."""
    parser.usage = "ditport generate --prompt TEXT [OPTIONS]"
    parser.epilog = EXAMPLES
    classes = settings_classes()
    for name, title in TITLES.items():
        if name != "later":
            add_options(parser, classes[name], title)
    report = parser.add_argument_group("report")
    report.add_argument(
        "--config", metavar="FILE", help="options from a .json or .yaml file; the line's own win"
    )
    report.add_argument(
        "--json", action="store_true", help="the result as JSON on stdout, progress on stderr"
    )
    report.add_argument("--quiet", action="store_true", help="print nothing but the file's path")
    report.add_argument("--debug", action="store_true", help="show tracebacks")
    report.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help=argparse.SUPPRESS,
    )
    add_options(parser, classes["later"], argparse.SUPPRESS)


def settings_of(values: Mapping[str, object]) -> Settings:
    """All settings from the values that were given."""
    classes = settings_classes()
    return Settings(**{name: build(each, values) for name, each in classes.items()})


def run(args: argparse.Namespace) -> int:
    """Generate."""
    from ditport.cli.config import merged
    from ditport.cli.progress import Progress
    from ditport.cli.summary import summary
    from ditport.generation.job import plan

    quiet = args.quiet or args.log_level in ("warning", "error")
    values = merged(vars(args), args.config, tuple(settings_classes().values()))
    if args.debug:
        os.environ["DITPORT_DEBUG"] = "1"
    with Progress(sys.stderr, quiet=quiet) as progress:
        job = plan(settings_of(values), os.environ, progress)
        from ditport.generation.run import run as run_job  # numpy and torch from here on

        result = run_job(job, progress)
    if args.json:
        import json

        print(json.dumps(result.to_json(), indent=2, default=str))  # noqa: T201
    elif quiet:
        for file in result.files:
            print(file.path or "")  # noqa: T201
    else:
        print(summary(result))  # noqa: T201
    return 0


def parser() -> Parser:
    """The whole parser, for the reference and the tests."""
    made = Parser("ditport generate", "make a video or an image from a prompt")
    configure(made)
    return made


def parse(words: Sequence[str]) -> Settings:
    """Settings of a command line, config file included."""
    from ditport.cli.config import merged

    args = parser().parse(words)
    return settings_of(merged(vars(args), args.config, tuple(settings_classes().values())))
