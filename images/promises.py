"""Whether an image is what platforms.toml promises, by asking the image itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from images.container import ANY_USER, Container
from images.engine import Engine, Image
from images.errors import PromiseBroken
from images.platforms import Variant

FACTS: Final = "/opt/ditport/image.json"


@dataclass(frozen=True)
class Findings:
    """What an image says of itself."""

    image: Image
    facts: Mapping[str, Any]  # its facts file
    support: Mapping[str, Any]  # `ditport backends --json`
    probe: str  # `ditport probe --level live`

    @property
    def usable(self) -> frozenset[str]:
        """The backends that some implementation serves in the image."""
        return frozenset(row["backend"] for row in self.support["implementations"] if row["usable"])

    @property
    def megabytes(self) -> int:
        """Unpacked, in the units of `docker images`."""
        return round(self.image.size / 1e6)


def broken(variant: Variant, findings: Findings) -> tuple[str, ...]:
    """Every promise that is not kept, as a sentence."""
    facts = findings.facts
    pins = (("variant", variant.name), ("torch", variant.torch.version))
    wrong = [
        f"its {key} is {facts.get(key)!r}, pinned: {wanted!r}"
        for key, wanted in pins
        if facts.get(key) != wanted
    ]
    if not str(facts.get("python", "")).startswith(f"{variant.python}."):
        wrong.append(f"its Python is {facts.get('python')!r}, pinned: {variant.python}")
    wrong += [
        f"backend {backend} is promised and not usable"
        for backend in variant.backends
        if backend not in findings.usable
    ]
    if findings.megabytes > variant.max_megabytes:
        wrong.append(f"it has {findings.megabytes} MB, at most {variant.max_megabytes} promised")
    return tuple(wrong)


def _ask(engine: Engine, variant: Variant, *command: str, entrypoint: str | None = None) -> str:
    container = Container(variant.tag, command, entrypoint=entrypoint, user=ANY_USER)
    outcome = engine.run(container)
    if outcome.code:
        raise PromiseBroken(
            f"`{' '.join(command)}` exited {outcome.code} in {variant.tag}.",
            evidence=outcome.evidence,
            remedy="build the image anew; if this stays, the checkout's ditport is broken",
        )
    return outcome.output


def gather(variant: Variant, engine: Engine) -> Findings:
    return Findings(
        image=engine.image(variant.tag),
        facts=json.loads(_ask(engine, variant, FACTS, entrypoint="cat")),
        support=json.loads(_ask(engine, variant, "backends", "--json")),
        probe=_ask(engine, variant, "probe", "--level", "live"),
    )


def description(variant: Variant, findings: Findings) -> str:
    lines = [
        f"image     {variant.tag}, {findings.megabytes} MB, {findings.image.identity}",
        *(f"{key:<10}{value}" for key, value in findings.facts.items()),
        f"promises  kept: {', '.join(variant.backends)} usable, at most {variant.max_megabytes} MB",
        "",
        findings.probe,
    ]
    return "\n".join(lines)


def probe(variant: Variant, engine: Engine) -> str:
    """A description of the image; PromiseBroken where it is not what was promised."""
    findings = gather(variant, engine)
    wrong = broken(variant, findings)
    if wrong:
        raise PromiseBroken(
            f"{variant.tag} does not keep its promises.",
            evidence="; ".join(wrong),
            remedy="build it anew, or correct images/platforms.toml",
        )
    return description(variant, findings)
