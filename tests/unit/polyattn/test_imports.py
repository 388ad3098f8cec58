"""What imports without torch, and commands that run without it: the one list."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

# Modules whose import must bring in none of HEAVY. "package.*" is the package and all below it.
TORCH_FREE: Final = (
    "polyattn",
    "polyattn.call",
    "polyattn.capabilities",
    "polyattn.errors",
    "polyattn.executions",
    "polyattn.facts",
    "polyattn.forcing",
    "polyattn.platforms",
    "polyattn.preferences",
    "polyattn.probe.*",
    "polyattn.progress",
    "polyattn.selector",
    "polyattn.sparse.mask_strategy",
    "polyattn.sparse.options",
    "polyattn.vocabulary",
    "ditport.*",
)

# numpy comes with torch's neighbours and takes as long as all of polyattn.
HEAVY: Final = ("torch", "diffusers", "transformers", "accelerate", "numpy")

# A finder that refuses them, before any other is asked.
BLOCKED: Final = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY!r}:
            raise AssertionError(f"{{name}} was imported")
sys.meta_path.insert(0, Refuse())
"""

IMPORT_ALL: Final = """
import importlib, pkgutil
failed = []
def bring(name):
    try:
        return importlib.import_module(name)
    except AssertionError as error:
        failed.append(f"{name}: {error}")
for name in sys.argv[1:]:
    package = bring(name.removesuffix(".*"))
    if package is not None and name.endswith(".*"):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not found.name.endswith(".__main__"):
                bring(found.name)
print("\\n".join(failed))
"""

RUN: Final = """
from ditport.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:  # argparse ends so after --help
    code = end.code
assert not set(sys.modules) & {"torch", "diffusers", "transformers", "numpy"}
sys.exit(code or 0)
"""


def python(body: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", BLOCKED + body, *arguments]
    return subprocess.run(argv, capture_output=True, check=False, text=True)


def test_torch_free_modules_stay_so() -> None:
    done = python(IMPORT_ALL, *TORCH_FREE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_the_block_blocks() -> None:
    done = python(IMPORT_ALL, "polyattn.oracle.dense")
    assert "polyattn.oracle.dense: torch was imported" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("--version",),
        ("backends",),
        ("backends", "--json"),
        ("backends", "--markdown"),
        ("backends", "--help"),
        ("probe",),
        ("probe", "--level", "static", "--json"),
        ("probe", "--help"),
        ("generate", "--help"),
        ("download", "--help"),
        ("models", "--help"),
        ("inspect", "--help"),
    ],
    ids=" ".join,
)
def test_commands_run_without_torch(words: tuple[str, ...]) -> None:
    done = python(RUN, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert done.stderr == ""
