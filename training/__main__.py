"""``python -m training {vae,dit,export,evaluate,all}``: makes the embedded demo model.

Every step continues from what it finds in the training folder, so an interrupted run is
started again with the same command. `all` takes under three hours on two cores: the VAE learns
beside the transformer, in a process of its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
MODEL = REPOSITORY / "runtime" / "ditport" / "demo" / "model"


def main() -> None:
    arguments = parse_arguments()
    folder, model = arguments.folder, arguments.model
    if arguments.what in ("vae", "dit"):
        train(arguments.what, folder, arguments.minutes, arguments.until)
    elif arguments.what == "export":
        export(folder, model)
    elif arguments.what == "evaluate":
        evaluate(folder, model, arguments.share)
    else:
        vae = subprocess.Popen(
            [sys.executable, "-m", "training", "vae", "--folder", str(folder)], cwd=REPOSITORY
        )
        try:
            train("dit", folder, arguments.minutes, arguments.until)
        except BaseException:
            vae.terminate()
            raise
        if vae.wait() != 0:
            sys.exit("training the VAE failed; its message is above")
        export(folder, model)
        evaluate(folder, model, arguments.share)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=["vae", "dit", "export", "evaluate", "all"])
    parser.add_argument(
        "--folder",
        type=Path,
        default=REPOSITORY / ".train",
        help="checkpoints; a run continues from what is there (default: .train)",
    )
    parser.add_argument("--model", type=Path, default=MODEL, help="the exported model folder")
    parser.add_argument(
        "--minutes", type=float, help="of training in total, earlier runs included (vae, dit)"
    )
    parser.add_argument(
        "--until",
        type=time_of_day,
        metavar="HH:MM",
        help="what is left of the training ends then, instead of after --minutes (dit)",
    )
    parser.add_argument(
        "--share", type=float, default=1.0, help="of the evaluation's prompts (default: 1)"
    )
    return parser.parse_args()


def time_of_day(text: str) -> float:
    """The next moment at which local clocks show `text`, as time.time() counts."""
    now = datetime.datetime.now()
    moment = datetime.datetime.strptime(text, "%H:%M")
    moment = now.replace(hour=moment.hour, minute=moment.minute, second=0, microsecond=0)
    if moment <= now:
        moment += datetime.timedelta(days=1)
    return moment.timestamp()


def train(what: str, folder: Path, minutes: float | None, until: float | None) -> None:
    # Here and below: imports that cost seconds stand where they are needed.
    from training import dit, vae

    settings = vae.VaeSettings() if what == "vae" else dit.DitSettings()
    if minutes is not None:
        settings = dataclasses.replace(settings, seconds=minutes * 60)
    if isinstance(settings, vae.VaeSettings):
        vae.train(folder, settings)
    else:
        dit.train(folder, settings, until)


def export(folder: Path, model: Path) -> None:
    from training.export import export as write

    write(folder, model)


def evaluate(folder: Path, model: Path, share: float) -> None:
    from training.card import write_card
    from training.evaluate import SIZES
    from training.evaluate import evaluate as judge

    sizes = [dataclasses.replace(s, prompts=max(10, round(s.prompts * share))) for s in SIZES]
    judge(model, tuple(sizes))
    write_card(model, folder)


if __name__ == "__main__":
    main()
