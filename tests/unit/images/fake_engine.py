"""An engine that answers from a table, and remembers what it was asked to run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from images.container import Container
from images.engine import Image, Outcome
from images.errors import ImageMissing

IMAGE = Image(
    reference="ditport:cpu",
    identity="sha256:0123",
    size=1_137_000_000,
    user="1000:0",
    workdir="/",
    entrypoint=("ditport",),
    healthcheck=("CMD", "ditport", "probe"),
    stop_signal="SIGINT",
)


@dataclass
class FakeEngine:
    """`outcomes`: by the whole command, its first word or the entrypoint."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    images: dict[str, Image] = field(default_factory=lambda: {IMAGE.reference: IMAGE})
    ran: list[Container] = field(default_factory=list)

    def image(self, reference: str) -> Image:
        if reference not in self.images:
            raise ImageMissing(f"{reference} is not on this engine.")
        return self.images[reference]

    def run(self, container: Container, *, follow: bool = False) -> Outcome:
        self.ran.append(container)
        keys = (" ".join(container.command), *container.command[:1], container.entrypoint)
        return next(
            (self.outcomes[key] for key in keys if key in self.outcomes), Outcome(0, "", "")
        )

    def layer_files(self, reference: str) -> Iterator[tuple[str, bytes]]:
        return iter(())
