"""The CPU: always there."""

from __future__ import annotations

import re

from polyattn.facts import DeviceFacts
from polyattn.probe.host import Found, Host


def devices(host: Host) -> Found:
    """One device, the processor, with the memory that this process may use."""
    cpuinfo = host.read("proc/cpuinfo") or ""
    named = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    name = named.group(1) if named else f"{host.machine} CPU"
    return Found(devices=(DeviceFacts(0, name, host.machine, memory_bytes(host)),))


def memory_bytes(host: Host) -> int | None:
    """The machine's memory, or the container's limit where that is smaller; None if unknown."""
    total = re.search(r"^MemTotal:\s*(\d+) kB", host.read("proc/meminfo") or "", re.MULTILINE)
    limits = [int(total.group(1)) * 1024] if total else []
    for path in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limit = host.read(path)
        if limit and limit.isdigit():
            limits.append(int(limit))
    return min(limits, default=None)
