"""NVIDIA GPUs: from NVML, else from nvidia-smi where the driver's files say that there are some."""

from __future__ import annotations

import csv
import io
from typing import Any, Final

from polyattn.facts import DeviceFacts
from polyattn.probe import nvml
from polyattn.probe.host import Found, Host, visible

QUERY: Final = "index,name,compute_cap,memory.total,uuid,driver_version"
_MIB: Final = 1024 * 1024


def devices(host: Host, library: Any = None) -> Found:
    """The devices that CUDA would show, numbered as CUDA numbers them (except as noted)."""
    found, ids, driver, notes = _from_nvml(host, library)
    if not found and _worth_asking(host):
        found, ids, driver, said = _from_smi(host)
        notes += said
    if not found:
        return Found(driver=driver, notes=notes)
    value = host.environ.get("CUDA_VISIBLE_DEVICES")
    if value is not None and "MIG-" in value:
        # A process sees one slice, whose identifier does not name its GPU; slices of one machine
        # are of one architecture, and only CUDA knows how much memory this one has.
        whole = found[0]
        piece = DeviceFacts(0, f"{whole.name} (MIG slice)", whole.architecture)
        return Found((piece,), driver, (*notes, f"CUDA_VISIBLE_DEVICES={value} is a MIG slice"))
    shown, hidden = visible(found, "CUDA_VISIBLE_DEVICES", value, ids)
    return Found(shown, driver, (*notes, *hidden, *_order_note(shown, host)))


_Read = tuple[tuple[DeviceFacts, ...], tuple[str, ...], str | None, tuple[str, ...]]


def _from_nvml(host: Host, library: Any) -> _Read:
    if library is None:
        if not host.real:
            return (), (), None, ()
        try:
            library = nvml.load()
        except OSError:
            return (), (), None, undriven(host)
    try:
        found, ids, driver = nvml.read(library)
    except nvml.NvmlError as error:
        return (), (), None, (f"NVML is installed but answers {error}",)
    except AttributeError as error:
        return (), (), None, (f"NVML is installed but too old: {error}",)
    return found, ids, driver, () if found else ("NVML finds no NVIDIA device",)


def _worth_asking(host: Host) -> bool:
    """nvidia-smi takes up to seconds: it is only run where the driver left traces."""
    return host.exists("proc/driver/nvidia/version") or host.exists("dev/nvidiactl")


def _from_smi(host: Host) -> _Read:
    output = host.tool("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits")
    if output.text is None:
        return (), (), None, (output.failure or "nvidia-smi printed nothing",)
    found: list[DeviceFacts] = []
    ids: list[str] = []
    driver: str | None = None
    for fields in csv.reader(io.StringIO(output.text), skipinitialspace=True):
        if len(fields) != len(QUERY.split(",")):
            return (), (), None, (f"nvidia-smi printed {','.join(fields)!r}",)
        index, name, capability, memory, uuid, driver = (field.strip() for field in fields)
        size = int(memory) * _MIB if memory.isdigit() else None
        found.append(DeviceFacts(int(index), name, f"sm_{capability.replace('.', '')}", size))
        ids.append(uuid)
    return tuple(found), tuple(ids), driver, ()


def undriven(host: Host) -> tuple[str, ...]:
    """An NVIDIA device on the PCI bus (vendor 10de, a display class) that no driver serves here."""
    for path in host.glob("sys/bus/pci/devices/*"):
        vendor = host.read(str(path.relative_to(host.root) / "vendor"))
        kind = host.read(str(path.relative_to(host.root) / "class")) or ""
        if vendor == "0x10de" and kind.startswith("0x03"):
            return (
                "an NVIDIA GPU is on the PCI bus, but its driver's libraries are not here "
                f"({nvml.SONAME} does not load); a container needs the NVIDIA Container Toolkit "
                "and --gpus all",
            )
    return ()


def _order_note(shown: tuple[DeviceFacts, ...], host: Host) -> tuple[str, ...]:
    # CUDA puts the fastest device first unless told otherwise; NVML goes by PCI address. Which one
    # is fastest only CUDA knows: the import probe asks it.
    mixed = len({device.architecture for device in shown}) > 1
    if not mixed or host.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return ()
    return (
        "devices of several architectures, listed in PCI order; CUDA may number them otherwise "
        "unless CUDA_DEVICE_ORDER=PCI_BUS_ID",
    )
