"""The Docker Engine, as little of it as the images need.

Everything else takes an `Engine`, so that it is tested without one. The SDK is imported on
first use: without it, and without an engine, the error says how to get one.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from images.errors import EngineMissing, ImageMissing, ImagesError

if TYPE_CHECKING:
    from images.container import Container

REMEDY = (
    "start Docker 23 or newer with Buildx and Compose and let this user reach it"
    " (on Debian 12, as root: ../shared/engine/up)"
)


@dataclass(frozen=True)
class Image:
    """What the engine says of an image."""

    reference: str
    identity: str
    size: int
    user: str
    workdir: str
    entrypoint: tuple[str, ...]
    healthcheck: tuple[str, ...]
    stop_signal: str
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[str, ...] = ()
    history: tuple[tuple[str, int], ...] = ()  # the step and its bytes, oldest first


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    code: int
    output: str
    errors: str

    @property
    def evidence(self) -> str:
        """The last lines of what it wrote, for an error."""
        return "\n".join((self.errors or self.output).strip().splitlines()[-15:])


class Engine(Protocol):
    """What the images need of an engine."""

    def image(self, reference: str) -> Image: ...

    def run(self, container: Container, *, follow: bool = False) -> Outcome:
        """`follow`: also show here what the container writes, while it runs."""
        ...

    def layer_files(self, reference: str) -> Iterator[tuple[str, bytes]]:
        """Every regular file of every layer, those that a later layer hides included."""
        ...


class DockerEngine:
    """The engine that DOCKER_HOST names, or the local one."""

    def __init__(self) -> None:
        try:
            import docker
        except ModuleNotFoundError as error:
            raise EngineMissing(
                "The Docker SDK for Python is not installed.",
                evidence=str(error),
                remedy="run this by nox (`nox -s probe-cpu`), or `pip install --group images`",
            ) from error
        self._errors = docker.errors
        try:
            self._client = docker.from_env(timeout=120)
            self._client.ping()
        except docker.errors.DockerException as error:
            raise EngineMissing(
                "No Docker Engine answers.", evidence=str(error), remedy=REMEDY
            ) from error

    def image(self, reference: str) -> Image:
        found = self._image(reference)
        attributes = found.attrs
        config = attributes["Config"]
        return Image(
            reference=reference,
            identity=attributes["Id"],
            size=attributes["Size"],
            user=config.get("User") or "",
            workdir=config.get("WorkingDir") or "/",
            entrypoint=tuple(config.get("Entrypoint") or ()),
            healthcheck=tuple((config.get("Healthcheck") or {}).get("Test") or ()),
            stop_signal=config.get("StopSignal") or "",
            environment=dict(each.split("=", 1) for each in config.get("Env") or ()),
            labels=config.get("Labels") or {},
            volumes=tuple(config.get("Volumes") or ()),
            history=tuple((step["CreatedBy"], step["Size"]) for step in reversed(found.history())),
        )

    def _image(self, reference: str) -> Any:
        try:
            return self._client.images.get(reference)
        except self._errors.ImageNotFound as error:
            variant = reference.rpartition(":")[2]
            raise ImageMissing(
                f"{reference} is not on this engine.",
                evidence=str(error),
                remedy=f"build it: nox -s build-{variant}",
            ) from error

    def run(self, container: Container, *, follow: bool = False) -> Outcome:
        import requests

        self._image(container.image)
        running = self._client.containers.run(detach=True, **container.sdk_arguments())
        shown = threading.Thread(target=_show, args=(running,), daemon=True)
        if follow:
            shown.start()
        try:
            try:
                code = running.wait(timeout=container.seconds)["StatusCode"]
            except requests.exceptions.RequestException as error:
                raise ImagesError(
                    f"A run of {container.image} did not end in {container.seconds} s.",
                    evidence=running.logs(tail=15).decode(errors="replace").strip() or str(error),
                    remedy="run it by hand with `docker run` to see where it stands",
                ) from error
            if follow:
                shown.join(timeout=10)
            return Outcome(
                code=code,
                output=running.logs(stdout=True, stderr=False).decode(errors="replace"),
                errors=running.logs(stdout=False, stderr=True).decode(errors="replace"),
            )
        finally:
            running.remove(force=True, v=True)

    def layer_files(self, reference: str) -> Iterator[tuple[str, bytes]]:
        with tempfile.TemporaryFile() as saved:
            for chunk in self._image(reference).save(chunk_size=2**22):
                saved.write(chunk)
            saved.seek(0)
            with tarfile.open(fileobj=saved) as archive:
                for member in archive:
                    blob = archive.extractfile(member)
                    if blob is None:
                        continue
                    yield from _files(member.name, blob)


def _show(running: Any) -> None:
    # A thread of its own: the stream has no time limit, and the wait beside it has one.
    for chunk in running.logs(stream=True, follow=True):
        sys.stdout.write(chunk.decode(errors="replace"))
        sys.stdout.flush()


def _files(name: str, blob: Any) -> Iterator[tuple[str, bytes]]:
    """The files of a layer; of anything else (manifest, configuration) the blob itself."""
    try:
        layer = tarfile.open(fileobj=blob)  # noqa: SIM115
    except tarfile.ReadError:
        blob.seek(0)
        yield name, blob.read()
        return
    with layer:
        for member in layer:
            content = layer.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name, content.read()
