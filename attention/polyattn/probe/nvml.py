"""NVIDIA's management library by ctypes: devices and driver without CUDA and without torch."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any, Final

from polyattn.facts import DeviceFacts

SONAME: Final = "libnvidia-ml.so.1"
_SUCCESS: Final = 0
_TEXT_BYTES: Final = 96


class NvmlError(Exception):
    """A call failed; the message is NVML's own."""


class _Memory(ctypes.Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


def load() -> Any:
    """The library; raises OSError where the driver is not installed or not mounted."""
    return ctypes.CDLL(SONAME)


def read(library: Any) -> tuple[tuple[DeviceFacts, ...], tuple[str, ...], str | None]:
    """Devices in PCI order, their UUIDs, and the driver's version; raises NvmlError."""
    _call(library, "nvmlInit_v2")
    try:
        count = c_uint()
        _call(library, "nvmlDeviceGetCount_v2", byref(count))
        pairs = [_device(library, index) for index in range(count.value)]
        driver = _text(library, "nvmlSystemGetDriverVersion")
    finally:
        library.nvmlShutdown()
    return tuple(device for device, _ in pairs), tuple(uuid for _, uuid in pairs), driver


def _device(library: Any, index: int) -> tuple[DeviceFacts, str]:
    handle = c_void_p()
    _call(library, "nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle))
    major, minor = c_int(), c_int()
    _call(library, "nvmlDeviceGetCudaComputeCapability", handle, byref(major), byref(minor))
    device = DeviceFacts(
        index,
        _text(library, "nvmlDeviceGetName", handle),
        f"sm_{major.value}{minor.value}",
        _memory(library, handle),
    )
    return device, _text(library, "nvmlDeviceGetUUID", handle)


def _memory(library: Any, handle: c_void_p) -> int | None:
    memory = _Memory()
    try:
        _call(library, "nvmlDeviceGetMemoryInfo", handle, byref(memory))
    except NvmlError:
        return None  # devices that share the host's memory (GB10) do not answer this
    return int(memory.total)


def _text(library: Any, function: str, *arguments: Any) -> str:
    buffer = (c_char * _TEXT_BYTES)()
    _call(library, function, *arguments, buffer, c_uint(_TEXT_BYTES))
    return buffer.value.decode(errors="replace")


def _call(library: Any, function: str, *arguments: Any) -> None:
    status = getattr(library, function)(*arguments)
    if status != _SUCCESS:
        library.nvmlErrorString.restype = ctypes.c_char_p
        words = library.nvmlErrorString(status) or b"unknown error"
        raise NvmlError(f"{function}: {words.decode(errors='replace')} ({status})")
