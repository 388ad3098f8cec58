"""What really ran: counted on the line before each kernel, reported as differences.

A `Tally` is what one lookup of one site resolved to. Its count is the only record of execution;
every report, metric and file tag is computed from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyattn.call import AttentionCall, Grid, Site
from polyattn.selector import Selection
from polyattn.vocabulary import Role

if TYPE_CHECKING:
    from torch import Tensor


class Tally:
    """One resolved lookup: the decision, the kernel, and how often it ran.

    `calls` is incremented without a lock: exact under the GIL, one running request per attached
    pipeline is assumed on a free-threaded Python.
    """

    __slots__ = ("attend", "call", "calls", "selection")

    def __init__(self, selection: Selection, call: AttentionCall, attend: Callable[..., Tensor]):
        self.selection = selection
        self.call = call
        self.attend = attend
        self.calls = 0


Snapshot = Mapping[Tally, int]


@dataclass(frozen=True)
class Execution:
    """How often one site ran one implementation on one grid."""

    component: str
    path: str
    role: Role
    backend: str
    implementation: str
    source: str
    calls: int
    grid: Grid | None = None
    requested: str | None = None
    reason: str | None = None  # why the request was not served; None where it was


@dataclass(frozen=True)
class ReportRow:
    """The executions of a component that agree in role, implementation and reason."""

    component: str
    role: Role
    backend: str
    implementation: str
    source: str
    requested: str | None = None
    reason: str | None = None
    calls: int = 0
    sites: int = 0

    @property
    def substitution(self) -> bool:
        """Whether something else than the request ran."""
        return self.reason is not None


@dataclass(frozen=True)
class ExecutionReport:
    """What ran between two snapshots. `bypasses` are attention calls that were not counted."""

    executions: tuple[Execution, ...] = ()
    bypasses: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()

    @property
    def calls(self) -> int:
        """All counted attention calls."""
        return sum(execution.calls for execution in self.executions)

    @property
    def rows(self) -> tuple[ReportRow, ...]:
        """The executions, merged per component, role, implementation and reason."""
        groups: dict[ReportRow, list[Execution]] = {}
        for e in self.executions:
            alike = ReportRow(
                e.component, e.role, e.backend, e.implementation, e.source, e.requested, e.reason
            )
            groups.setdefault(alike, []).append(e)
        return tuple(
            dataclasses.replace(
                row,
                calls=sum(e.calls for e in group),
                sites=len({e.path for e in group}),
            )
            for row, group in groups.items()
        )

    @property
    def substitutions(self) -> tuple[ReportRow, ...]:
        """The rows in which something else than the request ran."""
        return tuple(row for row in self.rows if row.substitution)

    def to_json(self, *, detail: bool = False) -> dict[str, Any]:
        """Plain data. `detail` adds every site with its grid."""
        data: dict[str, Any] = {
            "attention": [{**dataclasses.asdict(row), "role": str(row.role)} for row in self.rows],
            "bypasses": list(self.bypasses),
            "checks": list(self.checks),
        }
        if detail:
            data["sites"] = [
                {**dataclasses.asdict(e), "role": str(e.role)} for e in self.executions
            ]
        return data

    def table(self) -> str:
        """The rows as aligned text, one substitution reason per line below."""
        head = ("component", "role", "backend", "implementation", "chosen by", "sites", "calls")
        body = [
            (
                row.component,
                str(row.role),
                row.backend,
                row.implementation,
                row.source,
                str(row.sites),
                str(row.calls),
            )
            for row in self.rows
        ]
        widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in (head, *body)
        ]
        lines += [
            f"{row.component} ({row.role}): {row.requested} was requested, "
            f"{row.implementation} ran: {row.reason}"
            for row in self.substitutions
        ]
        lines += [f"not counted: {bypass}" for bypass in self.bypasses]
        return "\n".join(lines)


def snapshot(tallies: Iterable[Tally]) -> Snapshot:
    """The counts now."""
    return {tally: tally.calls for tally in tallies}


def executions(tallies: Iterable[Tally], since: Snapshot | None = None) -> tuple[Execution, ...]:
    """What ran since the snapshot (or ever), in the order of first use."""
    found = []
    for tally in tallies:
        calls = tally.calls - (since or {}).get(tally, 0)
        if calls:
            site = tally.call.site or Site("", "", 0, tally.call.role)
            selection = tally.selection
            found.append(
                Execution(
                    site.component,
                    site.path,
                    site.role,
                    selection.backend,
                    selection.implementation,
                    str(selection.source),
                    calls,
                    tally.call.grid,
                    str(selection.requested) if selection.requested else None,
                    selection.reason,
                )
            )
    return tuple(found)
