"""Timing whole processes: wall clock and processor time, interleaved so that both see the same
machine. The least of the repeats counts: everything else is the neighbours' work."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Timing:
    """The least seconds of a command."""

    wall: float
    cpu: float


def timed(command: Sequence[str], environ: Mapping[str, str]) -> Timing:
    """Run a command once. Raises if it fails."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    if status != 0:
        raise RuntimeError(f"{' '.join(command)} ended with status {status}")
    return Timing(wall, usage.ru_utime + usage.ru_stime)


def least(
    commands: Mapping[str, Sequence[str]], repeats: int, environ: Mapping[str, str]
) -> dict[str, Timing]:
    """Every command's least times; one run of each before counting warms the page cache."""
    for command in commands.values():
        timed(command, environ)
    runs: dict[str, list[Timing]] = {name: [] for name in commands}
    for _ in range(repeats):
        for name, command in commands.items():
            runs[name].append(timed(command, environ))
    return {
        name: Timing(min(t.wall for t in found), min(t.cpu for t in found))
        for name, found in runs.items()
    }


def report(title: str, result: dict[str, object], table: str, path: Path | None) -> None:
    """Print the table, and write the JSON if a path is given."""
    print(f"{title}\n{table}")
    if path is not None:
        path.write_text(json.dumps(result, indent=2) + "\n")
