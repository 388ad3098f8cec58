"""Facts in words, for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from polyattn.facts import PackageFacts, PlatformFacts, TorchFacts
from polyattn.platforms import platform
from polyattn.vocabulary import PackageState, ProbeLevel


def machine(facts: PlatformFacts) -> str:
    """One line: what attention is chosen for."""
    devices = "; ".join(
        f"{name} ({architecture})"
        for name, architecture in dict.fromkeys((d.name, d.architecture) for d in facts.devices)
    )
    torch = f"torch {facts.torch.version}" if facts.torch else "no torch"
    return f"{platform(facts.platform).title}: {devices or 'no device'}; {torch}"


def description(facts: PlatformFacts) -> str:
    """Every fact, aligned, one subject per paragraph line."""
    lines: list[tuple[str, str]] = [
        ("platform", f"{facts.platform} ({platform(facts.platform).title})"),
        ("system", f"{facts.system} {facts.machine}, Python {facts.python}"),
        ("torch", _torch(facts.torch)),
    ]
    if facts.driver:
        lines.append(("driver", facts.driver))
    if facts.image:
        lines.append(("image", f"ditport:{facts.image}"))
    lines += _labelled(
        "devices",
        aligned(
            (str(d.index), d.name, d.architecture, gibibytes(d.memory_bytes)) for d in facts.devices
        )
        or ["none"],
    )
    lines += _labelled("packages", aligned(_package(package) for package in facts.packages))
    if facts.level is ProbeLevel.LIVE:
        results = aligned(
            (
                result.implementation,
                f"device {result.device}",
                result.failure or f"right; largest error {result.max_error:.2g}",
            )
            for result in facts.live
        )
        lines += _labelled("live", results or ["nothing could be run"])
    lines += _labelled("notes", facts.notes)
    width = max(len(label) for label, _ in lines) + 2
    return "\n".join(f"{label:<{width}}{text}".rstrip() for label, text in lines)


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows of cells as lines whose columns stand below each other."""
    cells = list(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def gibibytes(size: int | None) -> str:
    """A number of bytes for people; nothing where it is not known."""
    return "" if size is None else f"{size / 2**30:.1f} GiB"


def _labelled(label: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    return [(label if number == 0 else "", line) for number, line in enumerate(lines)]


def _torch(torch: TorchFacts | None) -> str:
    if torch is None:
        return "not installed"
    built = f"ROCm {torch.hip}" if torch.hip else f"CUDA {torch.cuda}" if torch.cuda else ""
    kernels = f", kernels for {' '.join(torch.architectures)}" if torch.architectures else ""
    return torch.version + (f", built for {built}" if built else "") + kernels


def _package(package: PackageFacts) -> tuple[str, str, str]:
    state = str(package.state)
    if package.state in (PackageState.BROKEN, PackageState.FOREIGN) and package.detail:
        state = f"{state}: {package.detail}"
    return package.name, package.version or "-", state
