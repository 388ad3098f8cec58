"""How a container of ours is run: the hardening is one value, for probes, tests and compose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

# Any uid works; group 0 is what platforms that choose the uid themselves give.
ANY_USER: Final = "12345:0"
SECONDS: Final = 600


@dataclass(frozen=True)
class Hardening:
    """What a run is denied. The defaults are what the image promises to work under."""

    read_only: bool = True
    cap_drop: tuple[str, ...] = ("ALL",)
    security_opt: tuple[str, ...] = ("no-new-privileges:true",)
    tmpfs: tuple[str, ...] = ("/tmp",)
    pids_limit: int = 512


@dataclass(frozen=True)
class Mount:
    """A folder of this host."""

    source: Path
    target: str
    read_only: bool = True


@dataclass(frozen=True)
class Container:
    """One run."""

    image: str
    command: tuple[str, ...] = ()
    entrypoint: str | None = None
    user: str | None = None
    network: str = "none"
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    hardening: Hardening = Hardening()
    seconds: int = SECONDS

    def sdk_arguments(self) -> dict[str, Any]:
        """Keyword arguments of the Docker SDK's `containers.run`."""
        hardening = self.hardening
        arguments: dict[str, Any] = {
            "image": self.image,
            "command": list(self.command),
            "network_mode": self.network,
            "environment": dict(self.environment),
            "volumes": {
                str(mount.source): {"bind": mount.target, "mode": "ro" if mount.read_only else "rw"}
                for mount in self.mounts
            },
            "read_only": hardening.read_only,
            "cap_drop": list(hardening.cap_drop),
            "security_opt": list(hardening.security_opt),
            "tmpfs": dict.fromkeys(hardening.tmpfs, ""),
            "pids_limit": hardening.pids_limit,
        }
        optional = {
            "entrypoint": [self.entrypoint] if self.entrypoint else None,
            "user": self.user,
            "working_dir": self.workdir,
        }
        return arguments | {key: value for key, value in optional.items() if value is not None}
