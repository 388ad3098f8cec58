"""`docker compose run` from a folder that holds compose.yaml, as a person types it."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from images.compose import COMPOSE
from images.engine import Image

PROMPT = "a red circle moving right on a black background"
RUN = ("run", "--rm", "-T", "ditport")


class Project:
    """A folder with compose.yaml, under a name of its own so that no one's volumes are touched."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"ditport-test-{secrets.token_hex(4)}"
        shutil.copy(COMPOSE, folder)

    def compose(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", "compose", "--project-name", self.name, *arguments],
            cwd=self.folder,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def project(tmp_path: Path, image: Image) -> Iterator[Project]:
    assert image.reference == "ditport:cpu", "the service `ditport` is the first variant's"
    found = Project(tmp_path)
    yield found
    found.compose("down", "--volumes", "--remove-orphans")


@pytest.mark.parametrize("user", ["", "4242:4242"], ids=["the image's user", "a user of the host"])
def test_a_video_appears_in_a_folder_that_did_not_exist(project: Project, user: str):
    environment = {"DITPORT_USER": user} if user else {}
    done = project.compose(*RUN, "generate", "--prompt", PROMPT, **environment)
    assert done.returncode == 0, done.stderr
    outputs = project.folder / "outputs"
    (video,) = outputs.glob("*.mp4")
    assert video.stat().st_uid == (4242 if user else 1000)
    # The folder is the checkout's owner's, who may therefore delete what stands in it.
    assert outputs.stat().st_uid == (project.folder / "compose.yaml").stat().st_uid
    assert video.stat().st_mode & 0o444 == 0o444


def test_a_mistake_keeps_its_exit_code(project: Project):
    done = project.compose(
        "run", "--rm", "-T", "ditport", "generate", "--attention-backend", "sdpo"
    )
    assert done.returncode == 2
