"""What is known of a machine and of what is installed on it: frozen, JSON in and out.

Every decision is a function of these values, so a decision taken on one machine can be
replayed on any other from a file (`ditport backends --facts FILE`). Nothing here imports torch.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final

from polyattn.errors import InvalidFacts
from polyattn.vocabulary import PackageState, PlatformName, ProbeLevel

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True)
class DeviceFacts:
    """One accelerator, or the CPU.

    `architecture` is the field's own name: `sm_90`, `gfx942`, `apple_m2`, `x86_64`, `aarch64`.
    """

    index: int
    name: str
    architecture: str
    memory_bytes: int | None = None

    @property
    def compute_capability(self) -> tuple[int, int] | None:
        """(major, minor) of an NVIDIA device, else None."""
        if not self.architecture.startswith("sm_"):
            return None
        digits = self.architecture[3:].rstrip("af")
        return int(digits[:-1]), int(digits[-1])


@dataclass(frozen=True)
class TorchFacts:
    """The installed torch. `cuda` and `hip` are the versions it was built for, or None."""

    version: str
    cuda: str | None = None
    hip: str | None = None
    architectures: tuple[str, ...] = ()  # as torch.cuda.get_arch_list() names them; () if unknown


@dataclass(frozen=True)
class PackageFacts:
    """One package that an implementation may need, found or not."""

    name: str  # distribution name, e.g. "flash-attn-4"
    state: PackageState
    version: str | None = None
    detail: str | None = None  # why it is broken or foreign
    architectures: tuple[str, ...] = ()  # kernels seen in its binaries; () if not read


@dataclass(frozen=True)
class LiveResult:
    """A kernel run on small tensors: its largest error against the oracle, or why it failed."""

    implementation: str
    device: int
    max_error: float | None
    failure: str | None = None


@dataclass(frozen=True)
class PlatformFacts:
    """Everything that selection may rest on."""

    platform: PlatformName
    system: str  # "Linux", "Darwin"
    machine: str  # "x86_64", "aarch64", "arm64"
    python: str
    level: ProbeLevel = ProbeLevel.STATIC
    torch: TorchFacts | None = None
    driver: str | None = None
    devices: tuple[DeviceFacts, ...] = ()
    packages: tuple[PackageFacts, ...] = ()
    live: tuple[LiveResult, ...] = ()
    notes: tuple[str, ...] = ()  # what a probe could not read, in words
    image: str | None = None  # variant of the container image, if run inside one

    def package(self, name: str) -> PackageFacts:
        """The facts of a package; one that no probe mentioned is absent."""
        for package in self.packages:
            if package.name == name:
                return package
        return PackageFacts(name, PackageState.ABSENT)

    @property
    def architectures(self) -> tuple[str, ...]:
        """The distinct device architectures, in device order."""
        return tuple(dict.fromkeys(device.architecture for device in self.devices))

    @property
    def fingerprint(self) -> str:
        """A short digest that changes whenever any fact does."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    def for_device(self, index: int) -> PlatformFacts:
        """The same facts with one device only: selection on a mixed host is per device."""
        return dataclasses.replace(
            self, devices=tuple(device for device in self.devices if device.index == index)
        )

    def to_json(self) -> str:
        """Stable JSON: the same facts give the same text."""
        return json.dumps({"schema": SCHEMA_VERSION, **dataclasses.asdict(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> PlatformFacts:
        """Read what `to_json` wrote; raises InvalidFacts naming what is wrong."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidFacts(f"This is not a facts file: {error}.") from None
        if not isinstance(data, dict) or data.pop("schema", None) != SCHEMA_VERSION:
            raise InvalidFacts(
                f"This is not a facts file of schema {SCHEMA_VERSION}. "
                "`ditport probe --json` writes one."
            )
        try:
            return _build(cls, data)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidFacts(f"The facts file does not fit its schema: {error}.") from None


def _build(cls: type[PlatformFacts], data: dict[str, Any]) -> PlatformFacts:
    torch = data.get("torch")
    return cls(
        **{
            **data,
            "platform": PlatformName(data["platform"]),
            "level": ProbeLevel(data.get("level", ProbeLevel.STATIC.value)),
            "torch": torch and TorchFacts(**_tupled(torch)),
            "devices": tuple(DeviceFacts(**device) for device in data.get("devices", ())),
            "packages": tuple(
                PackageFacts(**{**_tupled(package), "state": PackageState(package["state"])})
                for package in data.get("packages", ())
            ),
            "live": tuple(LiveResult(**result) for result in data.get("live", ())),
            "notes": tuple(data.get("notes", ())),
        }
    )


def _tupled(data: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
