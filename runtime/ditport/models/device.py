"""Which device to run on, from facts alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ditport.errors import DeviceRefused
from ditport.options import nonempty, setting
from polyattn.vocabulary import PlatformName

if TYPE_CHECKING:
    from polyattn.facts import PlatformFacts

KINDS: Final = ("auto", "cpu", "cuda", "mps")


@dataclass(frozen=True)
class DeviceSettings:
    """The device options."""

    device: str = setting(
        "--device",
        default="auto",
        parse=nonempty,
        metavar="DEVICE",
        help="auto (default), cpu, cuda, cuda:1, mps; AMD GPUs are cuda to torch",
    )


def plan(settings: DeviceSettings, facts: PlatformFacts) -> str:
    """The torch device. Raises DeviceRefused for one that is not there."""
    asked = settings.device.lower()
    kind, colon, number = asked.partition(":")
    present = torch_kind(facts.platform)
    if asked == "auto":
        return present
    if kind not in KINDS or (colon and not number.isdigit()):
        raise DeviceRefused(
            f"{settings.device!r} is no device.", "", f"Known: {', '.join(KINDS)}, cuda:N."
        )
    if kind == "cpu":
        return "cpu"
    if kind != present:
        seen = "; ".join(facts.notes) or f"The {facts.platform} platform was found"
        raise DeviceRefused(
            f"This machine has no {kind} device that torch can use.",
            f"{seen.rstrip('.')}.",
            f"Leave --device out to use {present}; `ditport probe` shows what was found.",
        )
    if number and facts.devices and int(number) >= len(facts.devices):
        raise DeviceRefused(
            f"There is no device {asked}.",
            f"{len(facts.devices)} found: {', '.join(device.name for device in facts.devices)}.",
            "Count from 0.",
        )
    return asked


def torch_kind(platform: PlatformName) -> str:
    """torch's device type of a platform."""
    return "cuda" if platform in (PlatformName.CUDA, PlatformName.ROCM) else str(platform)
