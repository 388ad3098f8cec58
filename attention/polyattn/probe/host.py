"""Where a probe looks: all it reads of the world comes through this, so that tests can fake it."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Final

from polyattn.facts import DeviceFacts

TOOL_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Host:
    """A machine as a probe sees it: environment, file system, system name, Python's path."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    root: Path = Path("/")
    system: str = field(default_factory=platform.system)
    machine: str = field(default_factory=platform.machine)
    python_path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))

    @property
    def real(self) -> bool:
        """Whether this is the machine itself: only then may libraries be asked, too."""
        return self.root == Path("/")

    def read(self, path: str) -> str | None:
        """The text of a file below the root, or None where it cannot be read."""
        try:
            return (self.root / path.lstrip("/")).read_text(errors="replace").strip()
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        """Whether a path below the root exists."""
        return (self.root / path.lstrip("/")).exists()

    def opens(self, path: str) -> bool:
        """Whether this user may open a device file below the root."""
        return os.access(self.root / path.lstrip("/"), os.R_OK | os.W_OK)

    def glob(self, pattern: str) -> list[Path]:
        """The paths below the root that match, sorted by name."""
        return sorted(self.root.glob(pattern.lstrip("/")))

    def tool(self, *argv: str) -> ToolOutput:
        """Run a tool found on the environment's PATH, with a time limit."""
        import subprocess  # most machines need no tool

        program = which(argv[0], path=self.environ.get("PATH", os.defpath))
        if program is None:
            return ToolOutput(None, f"{argv[0]} is not on the PATH")
        try:
            done = subprocess.run(
                [program, *argv[1:]],
                capture_output=True,
                check=False,
                env=dict(self.environ),
                errors="replace",
                stdin=subprocess.DEVNULL,
                text=True,
                timeout=TOOL_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return ToolOutput(None, f"{argv[0]} did not finish within {TOOL_SECONDS:.0f} s")
        except OSError as error:
            return ToolOutput(None, f"{argv[0]} could not be run: {error.strerror}")
        if done.returncode:
            words = (done.stderr.strip() or done.stdout.strip()).splitlines()
            said = f": {words[-1]}" if words else ""
            return ToolOutput(None, f"{argv[0]} exited with {done.returncode}{said}")
        return ToolOutput(done.stdout, None)


@dataclass(frozen=True)
class ToolOutput:
    """What a tool printed, or why there is nothing."""

    text: str | None
    failure: str | None


@dataclass(frozen=True)
class Found:
    """What a platform's probe found. `notes` say what it could not read, and why."""

    devices: tuple[DeviceFacts, ...] = ()
    driver: str | None = None
    notes: tuple[str, ...] = ()


def visible(
    devices: tuple[DeviceFacts, ...], variable: str, value: str | None, ids: tuple[str, ...] = ()
) -> tuple[tuple[DeviceFacts, ...], tuple[str, ...]]:
    """The devices that a variable such as CUDA_VISIBLE_DEVICES leaves, renumbered, and notes.

    As the driver does it: entries are indices or identifiers (or their beginnings), in the order
    given, and the first invalid one ends the list. `ids` are the devices' identifiers.
    """
    if value is None:
        return devices, ()
    chosen: list[DeviceFacts] = []
    ended = ""
    for entry in (piece.strip() for piece in value.split(",")):
        found = _device(entry, devices, ids)
        if found is None or found in chosen:
            ended = entry
            break
        chosen.append(found)
    renumbered = tuple(
        DeviceFacts(index, device.name, device.architecture, device.memory_bytes)
        for index, device in enumerate(chosen)
    )
    if len(chosen) == len(devices):
        return renumbered, ()
    why = f" ({ended!r} names no device)" if ended and ended != "-1" else ""
    return renumbered, (
        f"{variable}={value} hides {len(devices) - len(chosen)} of {len(devices)} devices{why}",
    )


def _device(
    entry: str, devices: tuple[DeviceFacts, ...], ids: tuple[str, ...]
) -> DeviceFacts | None:
    if entry.isdigit():
        return devices[int(entry)] if int(entry) < len(devices) else None
    matches = [
        device for device, known in zip(devices, ids, strict=False) if known.startswith(entry)
    ]
    return matches[0] if entry and len(matches) == 1 else None
