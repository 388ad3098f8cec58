"""The test suites that need an image: tests/matrix inside it, tests/images around it.

The image carries no pytest. What runs tests/matrix is installed into a folder of this host by
a hash-pinned lock and mounted beside the tests, so that what is tested is what is shipped.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from images.container import ANY_USER, Container, Mount
from images.engine import Engine
from images.errors import ImagesError, PromiseBroken
from images.lock import LOCKS
from images.platforms import ROOT, Variant

log: Final = logging.getLogger(__name__)

MATRIX: Final = "tests/matrix"
IMAGES: Final = "tests/images"
LOCK: Final = LOCKS / "matrix.txt"
TOOLS: Final = ROOT / ".nox" / "matrix-tools"
SECONDS: Final = 2400


def tools_folder(variant: Variant) -> Path:
    """One folder per lock and Python: a new pin never meets an old file."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    return TOOLS / f"{variant.python}-{digest}"


def install_command(variant: Variant, folder: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)),
        *("--no-deps", "--only-binary", ":all:", "--python-version", variant.python),
        *("--require-hashes", "--requirement", str(LOCK)),
    ]


def install_tools(variant: Variant) -> Path:
    folder = tools_folder(variant)
    if not (folder / "pytest").is_dir():
        done = subprocess.run(install_command(variant, folder), check=False)
        if done.returncode:
            raise ImagesError(
                "pytest could not be installed for the image.",
                evidence=f"pip exited {done.returncode}; its output stands above",
                remedy="let pip reach its index, then run this again",
            )
    return folder


def matrix_container(variant: Variant, tools: Path, arguments: tuple[str, ...]) -> Container:
    """The whole hardening, as a uid that no image knows, with nothing writable but /tmp."""
    return Container(
        image=variant.tag,
        entrypoint="python",
        command=("-m", "pytest", "-p", "no:cacheprovider", MATRIX, *arguments),
        user=ANY_USER,
        mounts=(
            Mount(tools, "/tools"),
            Mount(ROOT / "tests", "/src/tests"),
            Mount(ROOT / "pyproject.toml", "/src/pyproject.toml"),
        ),
        # One thread: OpenMP's spinning barriers cost minutes on tensors as small as the matrix's.
        environment={"PYTHONPATH": "/tools", "OMP_NUM_THREADS": "1"},
        workdir="/src",
        seconds=SECONDS,
    )


def run_matrix(variant: Variant, engine: Engine, arguments: tuple[str, ...]) -> None:
    """No test at all is an error: an empty suite must not pass for a tested image."""
    if not any((ROOT / MATRIX).glob("**/test_*.py")):
        raise PromiseBroken(
            f"{MATRIX} holds no test.",
            evidence=str(ROOT / MATRIX),
            remedy="run this in a whole checkout",
        )
    container = matrix_container(variant, install_tools(variant), arguments)
    log.info("%s inside %s", MATRIX, variant.tag)
    outcome = engine.run(container, follow=True)
    if outcome.code:
        raise PromiseBroken(
            f"{MATRIX} failed inside {variant.tag} (pytest exited {outcome.code}).",
            evidence=outcome.evidence,
            remedy="read the failures above",
        )


def images_command(arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "pytest", IMAGES, *arguments]


def run(variant: Variant, engine: Engine, arguments: tuple[str, ...]) -> int:
    """Both suites; the second runs even where the first failed."""
    failure: ImagesError | None = None
    try:
        run_matrix(variant, engine, arguments)
    except PromiseBroken as error:
        failure = error
    environment = dict(os.environ) | {"DITPORT_VARIANT": variant.name}
    code = subprocess.run(
        images_command(arguments), cwd=ROOT, env=environment, check=False
    ).returncode
    if failure is not None:
        raise failure
    return code
