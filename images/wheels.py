"""Fill the named build context `wheels` where PyTorch's index cannot be reached.

Then this machine's own pip may know another source of the processor build (a mirror, a
folder of wheels): it is asked, and the lock's hash decides whether the answer is the one.
"""

from __future__ import annotations

import hashlib
import logging
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from images import lock
from images.errors import WheelRefused
from images.platforms import ROOT, Variant

log: Final = logging.getLogger(__name__)

SECONDS_TO_REACH: Final = 10
SECONDS_TO_FETCH: Final = 600


def digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            found.update(block)
    return found.hexdigest()


def reachable(url: str) -> bool:
    """Whether the index answers at all; what it answers is pip's to judge."""
    try:
        with urllib.request.urlopen(url, timeout=SECONDS_TO_REACH):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def admitted(variant: Variant) -> frozenset[str]:
    return lock.hashes((ROOT / variant.lock).read_text(encoding="utf-8"), "torch")


def check(wheel: Path, variant: Variant) -> None:
    found = digest(wheel)
    if found not in admitted(variant):
        raise WheelRefused(
            f"{wheel.name} is not the torch that {variant.lock} names.",
            evidence=f"sha256 {found}; admitted: {', '.join(sorted(admitted(variant)))}",
            remedy=f"delete {wheel}; if torch {variant.torch.version} was pinned anew, run"
            " `nox -s lock`",
        )


def fetch_command(variant: Variant, folder: Path) -> list[str]:
    # With the local part (+cpu): an index that has only the CUDA build is not asked for it.
    return [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"),
        *("--python-version", variant.python, "--dest", str(folder)),
        f"torch=={variant.torch.version}",
    ]


def provide(variant: Variant, folder: Path = lock.WHEELS) -> None:
    """Leave in `folder` the wheel that the lock names, or nothing where the index serves it."""
    present = sorted(folder.glob("torch-*.whl"))
    if present:
        for wheel in present:
            check(wheel, variant)
        return
    if reachable(variant.torch.index):
        return
    log.info("%s cannot be reached: asking this machine's own pip for torch", variant.torch.index)
    try:
        # Its failure is no error here: the build says what to do where no wheel came.
        subprocess.run(fetch_command(variant, folder), check=False, timeout=SECONDS_TO_FETCH)
    except subprocess.TimeoutExpired:
        log.warning("pip did not fetch torch in %d s", SECONDS_TO_FETCH)
    for wheel in folder.glob("torch-*.whl"):
        try:
            check(wheel, variant)
        except WheelRefused:
            wheel.unlink()
            raise
