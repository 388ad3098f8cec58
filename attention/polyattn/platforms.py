"""The rows: one per platform, with its probe and the order in which automatic choice looks.

The order names implementations. Automatic choice takes the first whose needs are met and never a
lossy or a sparse one. Sources: design.md "Selection" 3; facts/peers.md (what sglang-diffusion,
vLLM-Omni and xDiT choose per architecture). No order has been confirmed by a run of ours yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from polyattn.facts import PlatformFacts
from polyattn.vocabulary import Backend, PlatformName


@dataclass(frozen=True)
class AutomaticOrder:
    """Implementations to try, in order, on devices whose architecture starts so ("" is any)."""

    architecture: str
    implementations: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Platform:
    """One platform.

    `probe` is the module whose `devices()` lists the devices without importing torch.
    `dense_backend`: where it is set, any dense request is served by that backend, with a
    warning: documented platform behaviour, not an error.
    """

    name: PlatformName
    title: str
    probe: str
    automatic: tuple[AutomaticOrder, ...]
    dense_backend: str | None = None

    def order(self, facts: PlatformFacts) -> AutomaticOrder:
        """The first order that fits every device of these facts; the last one fits any."""
        for order in self.automatic:
            devices = facts.architectures
            if devices and all(device.startswith(order.architecture) for device in devices):
                return order
        return self.automatic[-1]


PLATFORMS: Final[tuple[Platform, ...]] = (
    Platform(
        name=PlatformName.CUDA,
        title="NVIDIA CUDA",
        probe="polyattn.probe.device_cuda",
        automatic=(
            AutomaticOrder("sm_8", ("fa3", "fa3_hopper", "fa2", "fa4", "sdpa"), "FA3 leads on 8.x"),
            AutomaticOrder("sm_90", ("fa3", "fa3_hopper", "fa4", "fa2", "sdpa"), "FA3 is for 9.0"),
            AutomaticOrder("sm_10", ("sdpa", "fa4", "fa2"), "cuDNN leads on 10.x, sglang 33655"),
            AutomaticOrder("sm_12", ("sdpa", "fa4", "fa2"), "FA fails on 12.x, sglang 15342"),
            AutomaticOrder("", ("sdpa",), "no FlashAttention kernel is known to fit every device"),
        ),
    ),
    Platform(
        name=PlatformName.ROCM,
        title="AMD ROCm",
        probe="polyattn.probe.device_rocm",
        automatic=(AutomaticOrder("", ("fa2", "sdpa"), "FlashAttention where installed"),),
    ),
    Platform(
        name=PlatformName.MPS,
        title="Apple MPS",
        probe="polyattn.probe.device_mps",
        automatic=(
            AutomaticOrder("", ("sdpa", "sdpa_chunked"), "the only dense kernel on Metal here"),
        ),
        dense_backend=Backend.TORCH_SDPA.value,
    ),
    Platform(
        name=PlatformName.CPU,
        title="CPU",
        probe="polyattn.probe.device_cpu",
        automatic=(AutomaticOrder("", ("sdpa",), "the only dense kernel on a CPU here"),),
    ),
)


def platform(name: PlatformName) -> Platform:
    """The row of a platform."""
    return next(row for row in PLATFORMS if row.name is name)
