#!/usr/bin/env python3
"""Everything that is done to this repository. `nox -l` lists it; plain `nox` lints, types, tests.

Sessions named after an image variant (`build-cpu`, ...) exist for each table in
images/platforms.toml and need a Docker Engine; the others need none. This file orchestrates:
what a session does stands in images/, tests/ or training/.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import nox

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests"]
nox.options.reuse_venv = "yes"
# pip, not uv: only pip reads this machine's own pip configuration, which may be the one place
# that knows a processor build of torch.
nox.options.default_venv_backend = "virtualenv"

ROOT = Path(__file__).parent
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
VARIANTS = tomllib.loads((ROOT / "images" / "platforms.toml").read_text("utf-8"))["variants"]
DEVELOPED = ROOT / ".nox" / "developed"
# A process per core, each with one thread: the tests' tensors are too small to share.
PARALLEL = ("--numprocesses", "auto", "--dist", "worksteal")
SHELL = [".ci/run", "images/stages/packages.sh"]


def groups(*names: str) -> tuple[str, ...]:
    """The requirements of dependency groups."""
    return nox.project.dependency_groups(PROJECT, *names)


def developed(session: nox.Session) -> Callable[..., None]:
    """Python in the one environment that holds torch, current with pyproject.toml.

    It takes more than a gigabyte and a minute, so the sessions that need it share it.
    """

    def python(*arguments: str) -> None:
        interpreter = str(DEVELOPED / "bin" / "python")
        session.run(interpreter, *arguments, external=True, env={"OMP_NUM_THREADS": "1"})

    torch = VARIANTS["cpu"]["torch"]
    stamp = DEVELOPED / "installed.json"
    wanted = json.dumps([PROJECT["project"], PROJECT["dependency-groups"], torch])
    if stamp.is_file() and stamp.read_text("utf-8") == wanted:
        return python
    pip = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    session.run(sys.executable, "-m", "venv", str(DEVELOPED), external=True)
    if sys.platform == "linux":
        # PyPI's torch for Linux is a CUDA build of several GB. The processor build comes first,
        # from PyTorch's index or from wherever this machine's pip configuration says. Alone, since
        # pip would ask an index that cannot be reached for every dependency, and wait each time.
        index = ("--extra-index-url", torch["index"], "--retries", "1", "--no-deps")
        python(*pip, f"torch=={torch['version']}", *index)
    python(*pip, "--editable", ".", *groups("dev"))
    stamp.write_text(wanted, "utf-8")
    return python


@nox.session(tags=["check"])
def lint(session: nox.Session) -> None:
    """Check style of Python, the Dockerfile and the shell scripts."""
    session.install(*groups("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("hadolint", "images/Dockerfile")
    session.run("shellcheck", *SHELL)


@nox.session(venv_backend="none", tags=["check"])
def types(session: nox.Session) -> None:
    """Check types by mypy in strict mode."""
    python = developed(session)
    python("-m", "mypy", *session.posargs)


@nox.session(venv_backend="none", tags=["check"])
def tests(session: nox.Session) -> None:
    """Run the tests that need no container engine; arguments go to pytest."""
    python = developed(session)
    python("-m", "pytest", *PARALLEL, *session.posargs)
    python("docs/generate.py", "--check")


@nox.session(venv_backend="none", default=False)
def nightly(session: nox.Session) -> None:
    """Run every test that needs no container engine, the slow ones included."""
    python = developed(session)
    python("-m", "pip", "--disable-pip-version-check", "install", "--quiet", *groups("kernels"))
    suites = ("tests/unit", "tests/matrix", "tests/e2e")
    python("-m", "pytest", *PARALLEL, "--run-slow", *suites, *session.posargs)


@nox.session(venv_backend="none", default=False)
def generate(session: nox.Session) -> None:
    """Write the generated files anew: compose.yaml and the generated documentation."""
    python = developed(session)
    python("-m", "images", "compose", *session.posargs)
    python("docs/generate.py", *session.posargs)


@nox.session(venv_backend="none", default=False)
def docs(session: nox.Session) -> None:
    """Build the documentation into site/."""
    python = developed(session)
    python("-m", "sphinx", "-W", "-b", "html", "docs", "site", *session.posargs)


@nox.session(default=False)
def lock(session: nox.Session) -> None:
    """Resolve images/locks/ anew: every file that a build may take, by its hash."""
    session.install("uv")
    session.run("python", "-m", "images", "lock")


@nox.session(name="train-demo", venv_backend="none", default=False)
def train_demo(session: nox.Session) -> None:
    """Train the embedded demo model, continuing where a former run stopped."""
    python = developed(session)
    python("-m", "training", *(session.posargs or ["all"]))


def image_session(verb: str, variant: str, purpose: str) -> Callable[[nox.Session], None]:
    """A session that hands `verb` and `variant` to `python -m images`."""

    @nox.session(name=f"{verb}-{variant}", tags=[verb, variant], default=False)
    def run(session: nox.Session) -> None:
        session.install(*groups("images", "test"))
        session.run("python", "-m", "images", verb, variant, *session.posargs)

    run.__doc__ = purpose
    return run


for name in VARIANTS:
    image_session("build", name, f"Build the image ditport:{name}.")
    image_session("probe", name, f"Show what ditport:{name} is and check what it promises.")
    image_session(
        "test", name, f"Test ditport:{name}: tests/matrix inside it, tests/images around."
    )


if __name__ == "__main__":
    nox.main()
