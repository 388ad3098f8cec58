"""AMD GPUs, read from the kernel driver's topology in sysfs: no tool and no library is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from polyattn.facts import DeviceFacts
from polyattn.probe.host import Found, Host, visible

NODES: Final = "sys/devices/virtual/kfd/kfd/topology/nodes"

# In the order in which the ROCm runtime, then HIP, apply them.
VISIBLE: Final = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def devices(host: Host) -> Found:
    """Every compute node with SIMD units; CPUs are nodes, too, and have none."""
    if not host.exists(NODES):
        return Found()
    found: list[DeviceFacts] = []
    ids: list[str] = []
    notes: list[str] = []
    nodes = (node for node in host.glob(f"{NODES}/*") if node.name.isdigit())
    for node in sorted(nodes, key=lambda node: int(node.name)):
        properties = _properties(node / "properties")
        if properties is None:
            # A container that was given only some GPUs cannot read the others' nodes.
            notes.append(f"kfd node {node.name} cannot be read")
            continue
        version = properties.get("gfx_target_version", 0)
        if not version or not properties.get("simd_count"):
            continue
        target = gfx(version)
        name = _name(host, properties) or f"AMD {target}"
        found.append(DeviceFacts(len(found), name, target, _memory(node)))
        ids.append(f"GPU-{properties.get('unique_id', 0):016x}")
    if found and not host.exists("dev/kfd"):
        return Found(
            notes=(
                f"{len(found)} AMD GPU(s) ({found[0].architecture}) are in the machine, but "
                "/dev/kfd is not here; a container needs --device /dev/kfd --device /dev/dri",
            )
        )
    if found and not host.opens("dev/kfd"):
        return Found(
            notes=(
                f"{len(found)} AMD GPU(s) ({found[0].architecture}) are here, but this user may "
                "not open /dev/kfd; it needs the device's group (often render): in a container, "
                "--group-add with the number that `stat -c %g /dev/kfd` prints on the host",
            )
        )
    shown, hidden = _visible(tuple(found), tuple(ids), host)
    overridden, override = _overridden(shown, host)
    return Found(
        devices=overridden,
        driver=host.read("sys/module/amdgpu/version"),
        notes=(*notes, *hidden, *override),
    )


def gfx(version: int) -> str:
    """The kernel's number as the compiler's name: 90402 is gfx942, 90010 gfx90a, 110000 gfx1100."""
    major, minor, stepping = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{stepping:x}"


def _properties(path: Path) -> dict[str, int] | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    pairs = (line.split() for line in lines)
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _memory(node: Path) -> int | None:
    """The device's own memory: heap types 1 and 2 are its frame buffer, visible or not."""
    banks = [_properties(path) or {} for path in node.glob("mem_banks/*/properties")]
    sizes = [bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in (1, 2)]
    return sum(sizes) or None


def _name(host: Host, properties: dict[str, int]) -> str | None:
    minor = properties.get("drm_render_minor")
    return host.read(f"sys/class/drm/renderD{minor}/device/product_name") or None


def _visible(
    found: tuple[DeviceFacts, ...], ids: tuple[str, ...], host: Host
) -> tuple[tuple[DeviceFacts, ...], tuple[str, ...]]:
    notes: tuple[str, ...] = ()
    # HIP reads one of its two names only.
    names = VISIBLE[:2] if "HIP_VISIBLE_DEVICES" in host.environ else VISIBLE[::2]
    for variable in names:
        found, said = visible(found, variable, host.environ.get(variable), ids)
        if variable in host.environ:
            ids = ()  # the renumbered devices are told by index from here on
        notes += said
    return found, notes


def _overridden(
    found: tuple[DeviceFacts, ...], host: Host
) -> tuple[tuple[DeviceFacts, ...], tuple[str, ...]]:
    """HSA_OVERRIDE_GFX_VERSION=10.3.0 makes the runtime load gfx1030 code on every device."""
    override = host.environ.get("HSA_OVERRIDE_GFX_VERSION")
    if not override or not found:
        return found, ()
    parts = override.split(".")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        return found, (f"HSA_OVERRIDE_GFX_VERSION={override} is not MAJOR.MINOR.STEPPING",)
    major, minor, stepping = (int(part) for part in parts)
    target = gfx(major * 10000 + minor * 100 + stepping)
    real = ", ".join(dict.fromkeys(device.architecture for device in found))
    return (
        tuple(DeviceFacts(d.index, d.name, target, d.memory_bytes) for d in found),
        (f"HSA_OVERRIDE_GFX_VERSION={override}: {real} is treated as {target}",),
    )
