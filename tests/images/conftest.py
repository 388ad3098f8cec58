"""What these tests need: a Docker Engine, and an image that `nox -s build-<variant>` built.

Where either is missing they fail with the engine's or image's own error: `nox -s test-cpu` is
run to know that the image works, which a skipped test would not tell.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from images.container import ANY_USER, Container, Mount
from images.engine import DockerEngine, Image, Outcome
from images.platforms import Variant, load

Ask = Callable[..., Outcome]
Python = Callable[..., str]


@pytest.fixture(scope="session")
def variant() -> Variant:
    return load().variant(os.environ.get("DITPORT_VARIANT", "cpu"))


@pytest.fixture(scope="session")
def engine() -> DockerEngine:
    return DockerEngine()


@pytest.fixture(scope="session")
def image(engine: DockerEngine, variant: Variant) -> Image:
    return engine.image(variant.tag)


@pytest.fixture(scope="session")
def ask(engine: DockerEngine, variant: Variant) -> Ask:
    """Run the image, hardened and as a uid it does not know unless told otherwise."""

    def run(*command: str, **settings: Any) -> Outcome:
        defaults = {"user": ANY_USER, "seconds": 180}
        return engine.run(Container(variant.tag, command, **defaults | settings))

    return run


@pytest.fixture(scope="session")
def python(ask: Ask) -> Python:
    """What a piece of Python prints in the image."""

    def run(code: str, *arguments: str, **settings: Any) -> str:
        outcome = ask("-c", code, *arguments, entrypoint="python", **settings)
        assert outcome.code == 0, outcome.errors
        return outcome.output

    return run


@pytest.fixture
def outputs(tmp_path: Path) -> Mount:
    """A folder of this host, writable for any uid, as /outputs."""
    folder = tmp_path / "outputs"
    folder.mkdir()
    folder.chmod(0o1777)
    return Mount(folder, "/outputs", read_only=False)
