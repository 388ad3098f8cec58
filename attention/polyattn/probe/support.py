"""Which implementation runs where: for one machine by its facts, or for all of them as a table."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final

from polyattn import capabilities
from polyattn.capabilities import Implementation
from polyattn.facts import DeviceFacts, PlatformFacts
from polyattn.platforms import PLATFORMS, platform
from polyattn.probe.describe import aligned, machine
from polyattn.vocabulary import Fidelity, MaskKind, Role


@dataclass(frozen=True)
class Support:
    """One implementation on one machine: the reason why each device cannot run it, or None."""

    row: Implementation
    reasons: tuple[tuple[int, str | None], ...]

    @property
    def usable(self) -> bool:
        """Whether any device runs it."""
        return any(reason is None for _, reason in self.reasons)

    @property
    def words(self) -> str:
        """Usable here, or why not; per device where they differ."""
        if len({reason for _, reason in self.reasons}) == 1:
            return _verdict(self.row, self.reasons[0][1])
        return "; ".join(
            f"device {index}: {_verdict(self.row, reason)}" for index, reason in self.reasons
        )


@dataclass(frozen=True)
class Automatic:
    """What automatic choice tries on one device, in order: implementations that run there."""

    device: DeviceFacts
    implementations: tuple[str, ...]
    why: str


def support(facts: PlatformFacts) -> tuple[Support, ...]:
    """Every row, judged for every device."""
    # Without a device the machine is still judged, as device 0 of nothing.
    indices = [device.index for device in facts.devices] or [0]
    return tuple(
        Support(row, tuple((i, row.unmet_by_machine(facts.for_device(i))) for i in indices))
        for row in capabilities.rows()
    )


def automatic(facts: PlatformFacts) -> tuple[Automatic, ...]:
    """The automatic order of every device, without what cannot run there."""
    found = []
    for device in facts.devices:
        here = facts.for_device(device.index)
        order = platform(facts.platform).order(here)
        can = tuple(
            row.name
            for row in map(capabilities.row, order.implementations)
            if row.fidelity is Fidelity.EXACT and row.unmet_by_machine(here) is None
        )
        found.append(Automatic(device, can, order.why))
    return tuple(found)


def listing(facts: PlatformFacts) -> str:
    """What `ditport backends` prints."""
    rows = aligned((one.row.backend, one.row.name, one.words) for one in support(facts))
    orders = aligned(
        (f"device {a.device.index} ({a.device.architecture})", _in_order(a), a.why)
        for a in automatic(facts)
    )
    return "\n".join([machine(facts), "", *rows, "", "automatic choice", *orders])


def as_data(facts: PlatformFacts) -> dict[str, Any]:
    """What `ditport backends --json` prints."""
    return {
        "platform": str(facts.platform),
        "fingerprint": facts.fingerprint,
        "implementations": [
            {
                "name": one.row.name,
                "backend": str(one.row.backend),
                "title": one.row.title,
                "fidelity": str(one.row.fidelity),
                "evidence": one.row.evidence,
                "options": list(one.row.options),
                "usable": one.usable,
                "devices": [{"index": index, "reason": reason} for index, reason in one.reasons],
            }
            for one in support(facts)
        ],
        "automatic": [
            {
                "device": dataclasses.asdict(order.device),
                "implementations": list(order.implementations),
                "why": order.why,
            }
            for order in automatic(facts)
        ],
    }


HEAD: Final = (
    "backend",
    "implementation",
    "result",
    *(row.title for row in PLATFORMS),
    "package",
    "dtypes",
    "head_dim",
    "masks",
    "further needs",
    "evidence",
)


LEGEND: Final = "In parentheses: what the kernel serves, without an adapter in this version."


def markdown() -> str:
    """The documentation's support matrix: every row with its needs, for any machine."""
    lines = [HEAD, tuple("---" for _ in HEAD), *map(_cells, capabilities.rows())]
    table = [f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines]
    return "\n".join([*table, "", LEGEND])


def _cells(row: Implementation) -> tuple[str, ...]:
    needs = row.needs
    return (
        f"`{row.backend}`",
        f"`{row.name}`: {row.title}",
        str(row.fidelity),
        *(_architectures(row, platform) for platform in PLATFORMS),
        f"`{needs.package}`" if needs.package else "torch",
        ", ".join(needs.dtypes) or "any",
        _head_dims(row),
        ", ".join(str(m) for m in needs.masks if m is not MaskKind.NONE) or "none",
        "; ".join(_further(row)) or "none",
        row.evidence,
    )


def _architectures(row: Implementation, platform: Any) -> str:
    if platform.name not in row.needs.platforms:
        return "no"
    # An allow-list names devices of all its platforms: sm_ is NVIDIA's, gfx is AMD's.
    prefix = {"cuda": "sm_", "rocm": "gfx"}.get(str(platform.name), "")
    listed = [name for name in row.needs.architectures if name.startswith(prefix)]
    if not row.needs.architectures:
        listed = ["any"]
    return ", ".join(listed) if row.adapter or row.bind else f"({', '.join(listed)})"


def _head_dims(row: Implementation) -> str:
    needs = row.needs
    if needs.head_dims:
        return ", ".join(map(str, needs.head_dims))
    words = [f"up to {needs.max_head_dim}"] if needs.max_head_dim else []
    if needs.head_dim_multiple > 1:
        words.append(f"multiples of {needs.head_dim_multiple}")
    return ", ".join(words) or "any"


def _further(row: Implementation) -> list[str]:
    needs = row.needs
    words = [
        "" if needs.causal else "not causal",
        "" if needs.grouped_heads else "as many key heads as query heads",
        "" if needs.custom_scale else "default softmax scale",
        "" if needs.lse else "no log-sum-exp",
        "the token grid" if needs.grid else "",
        "" if len(needs.roles) == len(Role) else f"{' or '.join(map(str, needs.roles))} attention",
        *((rule.__doc__ or rule.__name__).split("\n")[0].rstrip(".") for rule in needs.rules),
    ]
    return [word for word in words if word]


def _verdict(row: Implementation, reason: str | None) -> str:
    if reason is not None:
        return f"no: {reason}"
    if row.fidelity is Fidelity.EXACT:
        return "usable"
    return f"usable on request ({row.fidelity})"


def _in_order(order: Automatic) -> str:
    if not order.implementations:
        return "nothing can run"
    first, *others = order.implementations
    return first if not others else f"{first}, else {', else '.join(others)}"
