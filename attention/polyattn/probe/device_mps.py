"""Apple's GPU through Metal: any Mac with Apple silicon has one."""

from __future__ import annotations

import platform

from polyattn.facts import DeviceFacts
from polyattn.probe.host import Found, Host


def devices(host: Host) -> Found:
    """The one Metal device of an Apple silicon Mac; its memory is the machine's."""
    if host.system != "Darwin":
        return Found()
    if host.machine != "arm64":
        # An x86_64 Python under Rosetta also reports x86_64; torch has no wheel for it any more.
        return Found(notes=("MPS needs an arm64 Python on Apple silicon; this one is x86_64",))
    brand = host.tool("sysctl", "-n", "machdep.cpu.brand_string")
    memory = host.tool("sysctl", "-n", "hw.memsize")
    name = (brand.text or "Apple silicon").strip()
    size = (memory.text or "").strip()
    return Found(
        devices=(DeviceFacts(0, name, architecture(name), int(size) if size.isdigit() else None),),
        driver=(platform.mac_ver()[0] or None) if host.real else None,
        notes=tuple(filter(None, (brand.failure, memory.failure))),
    )


def architecture(name: str) -> str:
    """`Apple M2 Pro` is apple_m2: the variants of a generation share their GPU family."""
    words = name.lower().split()
    return "_".join(words[:2]) if words[:1] == ["apple"] and len(words) > 1 else "apple"
