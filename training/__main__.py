"""``python -m training``: see each module for what it does."""

from __future__ import annotations

import argparse
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
MODEL = REPOSITORY / "runtime" / "ditport" / "demo" / "model"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    parser.add_argument("what", choices=["vae", "dit", "export", "evaluate", "all"])
    parser.add_argument("--folder", type=Path, default=REPOSITORY / ".train",
                        help="checkpoints; a run continues from what is there")
    parser.add_argument("--model", type=Path, default=MODEL, help="the exported model folder")
    parser.add_argument("--minutes", type=float, help="time budget of dit or vae")
    arguments = parser.parse_args()
    if arguments.what == "dit":
        from training import dit

        settings = dit.DitSettings()
        if arguments.minutes:
            settings = dit.DitSettings(seconds=arguments.minutes * 60)
        dit.train(arguments.folder, settings)
    if arguments.what == "vae":
        from training import vae

        vae_settings = vae.VaeSettings()
        if arguments.minutes:
            vae_settings = vae.VaeSettings(seconds=arguments.minutes * 60)
        vae.train(arguments.folder, vae_settings)


if __name__ == "__main__":
    main()
