"""`ditport sta search` and `ditport sta tune`: make a mask strategy for sliding_tile_attn."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from ditport.cli import generate
from ditport.errors import UsageError
from polyattn.errors import InvalidOptions
from polyattn.sparse.options import SlidingTileOptions, Triple, read

EXAMPLES: Final = """examples:
  ditport sta search --losses losses/ --prompt-file prompts.txt --tile-size 6x8x8
  ditport sta tune --losses losses/ --strategy strategy.json --target-density 0.4
  ditport generate --prompt "a curious raccoon" --attention-backend sliding_tile_attn \\
      --attention-backend-config mask_strategy_file_path=strategy.json

search generates every prompt with full attention and measures, per step, layer and head, how far
each window would have been off; prompts that are measured already are left out. tune chooses.
"""
SKIP_TIME_STEPS: Final = 12  # upstream's


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options; search also takes those of generate."""
    parser.add_argument("action", choices=("search", "tune"), help="measure, or choose")
    ours = parser.add_argument_group("windows")
    ours.add_argument("--losses", metavar="DIR", required=True, help="what search measures")
    ours.add_argument(
        "--tile-size", metavar="TxHxW", help="search: tokens of a tile (default 6x8x8)"
    )
    ours.add_argument(
        "--windows",
        metavar="TxHxW",
        nargs="+",
        help="search: windows to try, in tiles (default: 3 on some axes, all on the others)",
    )
    ours.add_argument("--strategy", metavar="FILE", help="tune: the file to write")
    ours.add_argument(
        "--skip-time-steps",
        metavar="N",
        type=int,
        default=SKIP_TIME_STEPS,
        help=f"tune: so many first steps attend in full (default {SKIP_TIME_STEPS})",
    )
    ours.add_argument(
        "--target-density",
        metavar="D",
        type=float,
        help="tune: the share of query-key pairs to compute on average (default: per head the "
        "window of the least loss, as upstream)",
    )
    generate.configure(parser)
    parser.usage = "ditport sta {search,tune} --losses DIR [OPTIONS]"
    parser.epilog = EXAMPLES


def run(args: argparse.Namespace) -> int:
    """Search or tune, print, and return 0."""
    folder = Path(args.losses).expanduser()
    return _search(args, folder) if args.action == "search" else _tune(args, folder)


def _search(args: argparse.Namespace, folder: Path) -> int:
    from ditport.cli.config import merged
    from ditport.cli.progress import Progress
    from ditport.generation.job import plan

    tile = SlidingTileOptions().tile_size
    if args.tile_size is not None:
        tile = _triple("tile_size", args.tile_size)
    windows = tuple(_triple("window", window) for window in args.windows or ())
    values = merged(vars(args), args.config, tuple(generate.settings_classes().values()))
    settings = generate.settings_of(values)
    settings = replace(settings, output=replace(settings.output, save_output=False))
    with Progress(sys.stderr, quiet=args.quiet) as progress:
        job = plan(settings, os.environ, progress)
        from ditport.generation.sta_search import as_data, search, table

        paths = search(job, folder, tile, windows, progress)
    from polyattn.sparse.tuning import Losses, average

    losses = average([(path, Losses.read(path)) for path in paths])
    print(json.dumps(as_data(losses)) if args.json else table(losses))  # noqa: T201
    return 0


def _tune(args: argparse.Namespace, folder: Path) -> int:
    from polyattn.sparse.tuning import average, read_all, tune

    if args.strategy is None:
        raise UsageError("sta tune writes a mask strategy; name the file by --strategy.")
    if args.target_density is not None and not 0 < args.target_density <= 1:
        raise UsageError(
            f"--target-density must be above 0 and at most 1, not {args.target_density:g}."
        )
    measured = read_all(folder)
    path = Path(args.strategy).expanduser()
    tuned = tune(average(measured), args.skip_time_steps, args.target_density, str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(tuned.strategy.to_json(), indent=0) + "\n", encoding="utf-8")
    strategy = tuned.strategy
    found = {
        "strategy": str(path),
        "prompts": len(measured),
        "steps": strategy.steps,
        "layers": strategy.layers,
        "heads": strategy.heads,
        "density": tuned.density,
        "mean_squared_difference": tuned.loss,
    }
    if args.json:
        print(json.dumps(found, indent=2))  # noqa: T201
    else:
        print(  # noqa: T201
            f"{path}: {strategy.steps} steps, {strategy.layers} layers, {strategy.heads} heads, "
            f"from {len(measured)} prompts; density {tuned.density:.3f}, mean squared difference "
            f"{tuned.loss:.3e}"
        )
    return 0


def _triple(option: str, text: str) -> Triple:
    try:
        options = read(SlidingTileOptions, {option: text})
    except InvalidOptions as error:
        raise UsageError(str(error)) from None
    return options.tile_size if option == "tile_size" else options.window or options.tile_size
