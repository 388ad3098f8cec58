"""What is known of a machine and of what is installed on it: frozen, JSON in and out.

Every decision is a function of these values, so a decision taken on one machine can be
replayed on any other from a file (`ditport backends --facts FILE`). Nothing here imports torch.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Final, TypeVar

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
        import hashlib  # brings OpenSSL in, which nothing else here needs at a start

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
    plain = {
        **data,
        "platform": PlatformName(data["platform"]),
        "level": ProbeLevel(data.get("level", ProbeLevel.STATIC.value)),
        "torch": None if data.get("torch") is None else _record(TorchFacts, data["torch"]),
    }
    for name, kind in (("devices", DeviceFacts), ("packages", PackageFacts), ("live", LiveResult)):
        entries = data.get(name, [])
        if not isinstance(entries, list):
            raise TypeError(f"{name} must be a list, not {entries!r}")
        plain[name] = tuple(_record(kind, entry) for entry in entries)
    return _record(cls, plain)


# The annotations of fields that JSON holds as they are.
_PLAIN: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "str | None": (str, type(None)),
    "int | None": (int, type(None)),
    "float | None": (float, int, type(None)),
}

Record = TypeVar("Record")


def _record(kind: type[Record], data: Any) -> Record:
    """A dataclass from its JSON; raises TypeError or ValueError naming the field that is wrong."""
    if not isinstance(data, dict):
        raise TypeError(f"{kind.__name__} must be an object, not {data!r}")
    values = dict(data)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # every caller gives one
        if field.name not in values:
            continue
        value, annotation = values[field.name], str(field.type)
        if annotation == "tuple[str, ...]":
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise TypeError(f"{kind.__name__}.{field.name} must be a list of texts")
            values[field.name] = tuple(value)
        elif annotation == "PackageState":
            values[field.name] = PackageState(value)
        elif annotation in _PLAIN and (
            not isinstance(value, _PLAIN[annotation]) or isinstance(value, bool)
        ):
            raise TypeError(f"{kind.__name__}.{field.name} must be {annotation}, not {value!r}")
    return kind(**values)
