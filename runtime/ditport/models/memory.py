"""Where components live while they are not computing: the offload options as a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ditport.errors import UsageError
from ditport.options import flag, one_of, real, setting

Placement = Literal["device", "offloaded", "layerwise"]


@dataclass(frozen=True)
class MemorySettings:
    """The memory options. None: as `performance_mode` says."""

    performance_mode: str = setting(
        "--performance-mode",
        "--mode",
        default="auto",
        parse=one_of("manual", "auto", "speed", "memory"),
        metavar="auto|speed|memory|manual",
        help="memory: everything waits in host memory until it computes; the default keeps all "
        "on the device",
    )
    dit_cpu_offload: bool | None = setting(
        "--dit-cpu-offload",
        default=None,
        parse=flag,
        switch=True,
        help="keep the DiT in host memory while it does not compute",
    )
    dit_layerwise_offload: bool | None = setting(
        "--dit-layerwise-offload",
        default=None,
        parse=flag,
        switch=True,
        help="bring the DiT's blocks to the device one after the other",
    )
    dit_offload_prefetch_size: float = setting(
        "--dit-offload-prefetch-size",
        default=0.0,
        parse=real(0),
        metavar="N",
        help="blocks brought at a time: a share of all below 1, a number from 1 on",
    )
    text_encoder_cpu_offload: bool | None = setting(
        "--text-encoder-cpu-offload",
        default=None,
        parse=flag,
        switch=True,
        help="the same for text encoders",
    )
    image_encoder_cpu_offload: bool | None = setting(
        "--image-encoder-cpu-offload",
        default=None,
        parse=flag,
        switch=True,
        help="the same for image encoders",
    )
    vae_cpu_offload: bool | None = setting(
        "--vae-cpu-offload", default=None, parse=flag, switch=True, help="the same for the VAE"
    )
    pin_cpu_memory: bool = setting(
        "--pin-cpu-memory",
        default=True,
        parse=flag,
        switch=True,
        help="pin host memory of layerwise offload (default true)",
    )
    vae_tiling: bool = setting(
        "--vae-tiling", default=False, parse=flag, switch=True, help="decode tile by tile"
    )
    vae_slicing: bool = setting(
        "--vae-slicing", default=False, parse=flag, switch=True, help="decode one output at a time"
    )


@dataclass(frozen=True)
class MemoryPlan:
    """A placement for every component, and how the VAE decodes."""

    device: str
    placements: tuple[tuple[str, Placement], ...]
    prefetch: float = 0.0
    pin: bool = True
    tiling: bool = False
    slicing: bool = False
    notes: tuple[str, ...] = ()

    def of(self, component: str) -> Placement:
        """Where a component lives; one that is not planned for lives on the device."""
        return dict(self.placements).get(component, "device")

    @property
    def all_on_device(self) -> bool:
        """Whether nothing is offloaded."""
        return all(placement == "device" for _, placement in self.placements)


def plan(settings: MemorySettings, device: str, components: tuple[str, ...]) -> MemoryPlan:
    """Decide placements. On a CPU there is nowhere to offload from, which is noted."""
    if settings.dit_cpu_offload and settings.dit_layerwise_offload:
        raise UsageError(
            "--dit-cpu-offload and --dit-layerwise-offload exclude each other.",
            "",
            "Layerwise offload takes the least device memory, whole offload is faster.",
        )
    everything = settings.performance_mode == "memory"
    placements: dict[str, Placement] = {}
    for component in components:
        asked = _asked(settings, component)
        if component.startswith(("transformer", "unet")) and settings.dit_layerwise_offload:
            placements[component] = "layerwise"
        else:
            placements[component] = (
                "offloaded" if (everything and asked is None) or asked else ("device")
            )
    notes: tuple[str, ...] = ()
    if device == "cpu" and any(placement != "device" for placement in placements.values()):
        placements = dict.fromkeys(placements, "device")
        notes = ("Offload has no effect here: the model runs on the CPU, in host memory.",)
    return MemoryPlan(
        device=device,
        placements=tuple(placements.items()),
        prefetch=settings.dit_offload_prefetch_size,
        pin=settings.pin_cpu_memory,
        tiling=settings.vae_tiling,
        slicing=settings.vae_slicing,
        notes=notes,
    )


def _asked(settings: MemorySettings, component: str) -> bool | None:
    if component.startswith(("transformer", "unet", "controlnet", "prior")):
        return settings.dit_cpu_offload
    if component.startswith("text_encoder"):
        return settings.text_encoder_cpu_offload
    if component.startswith("image_encoder"):
        return settings.image_encoder_cpu_offload
    if component.startswith(("vae", "vqvae")):
        return settings.vae_cpu_offload
    return None


def apply(plan: MemoryPlan, pipeline: Any) -> None:
    """Place a pipeline's modules."""
    import torch

    modules: dict[str, Any] = {
        name: module
        for name, module in pipeline.components.items()
        if isinstance(module, torch.nn.Module)
    }
    for vae in (module for name, module in modules.items() if name.startswith("vae")):
        if plan.tiling:
            vae.enable_tiling()
        if plan.slicing:
            vae.enable_slicing()
    if plan.all_on_device:
        if plan.device != "cpu":
            pipeline.to(plan.device)
        return
    if all(plan.of(name) == "offloaded" for name in modules):
        pipeline.enable_model_cpu_offload(device=plan.device)
        return
    device = torch.device(plan.device)
    previous = None
    for name, module in modules.items():
        if plan.of(name) == "device":
            module.to(device)
        elif plan.of(name) == "layerwise":
            _layerwise(plan, module, device)
        else:
            from accelerate import cpu_offload_with_hook

            _, previous = cpu_offload_with_hook(module, device, prev_module_hook=previous)


def _layerwise(plan: MemoryPlan, module: Any, device: Any) -> None:
    blocks = max(
        (len(child) for child in module.children() if hasattr(child, "__len__")), default=1
    )
    group = plan.prefetch if plan.prefetch >= 1 else plan.prefetch * blocks
    streams = device.type == "cuda"
    module.enable_group_offload(
        onload_device=device,
        offload_type="block_level",
        num_blocks_per_group=max(1, round(group)),
        use_stream=streams,
        low_cpu_mem_usage=streams and not plan.pin,
    )
