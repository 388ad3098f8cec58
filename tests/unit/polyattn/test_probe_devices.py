"""Each platform's devices, read from fake trees, fake tools and a fake NVML."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Sequence
from ctypes import POINTER, c_int, c_uint, c_void_p
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyattn.facts import DeviceFacts
from polyattn.probe import Host, device_cpu, device_cuda, device_mps, device_rocm
from polyattn.probe.host import visible
from tests.unit.polyattn.machines import GIB


def host(root: Path, system: str = "Linux", machine: str = "x86_64", **environ: str) -> Host:
    """A fake machine. Its PATH holds only the fake tools of `tool`."""
    environ.setdefault("PATH", str(root / "bin"))
    return Host(environ, root, system, machine, python_path=())


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def tool(root: Path, name: str, script: str) -> None:
    """A fake tool; the script may use the shell's own commands only, for its PATH is fake, too."""
    write(root, f"bin/{name}", f"#!/bin/sh\n{script}\n")
    (root / f"bin/{name}").chmod(0o755)


# The CPU


def test_cpu(tmp_path: Path) -> None:
    write(tmp_path, "proc/cpuinfo", "processor : 0\nmodel name\t: AMD EPYC 9654\nflags : fpu\n")
    write(tmp_path, "proc/meminfo", "MemTotal:       1048576 kB\nMemFree: 12 kB\n")
    found = device_cpu.devices(host(tmp_path))
    assert found.devices == (DeviceFacts(0, "AMD EPYC 9654", "x86_64", GIB),)
    assert found.notes == ()


@pytest.mark.parametrize(
    ("path", "limit", "memory"),
    [
        ("sys/fs/cgroup/memory.max", "536870912\n", GIB // 2),
        ("sys/fs/cgroup/memory.max", "max\n", GIB),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456", GIB // 4),
        # cgroup v1 writes a huge number for "no limit".
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712", GIB),
    ],
)
def test_cpu_memory_is_what_the_container_may_use(
    tmp_path: Path, path: str, limit: str, memory: int
) -> None:
    write(tmp_path, "proc/meminfo", "MemTotal: 1048576 kB\n")
    write(tmp_path, path, limit)
    assert device_cpu.memory_bytes(host(tmp_path)) == memory


def test_cpu_without_any_files(tmp_path: Path) -> None:
    # An Arm server's cpuinfo has no model name, macOS no /proc at all.
    found = device_cpu.devices(host(tmp_path, machine="aarch64"))
    assert found.devices == (DeviceFacts(0, "aarch64 CPU", "aarch64", None),)


# Apple


def test_mps(tmp_path: Path) -> None:
    tool(
        tmp_path,
        "sysctl",
        'case "$2" in\nmachdep.cpu.brand_string) echo "Apple M2 Pro";;\n'
        "hw.memsize) echo 34359738368;;\nesac",
    )
    found = device_mps.devices(host(tmp_path, "Darwin", "arm64"))
    assert found.devices == (DeviceFacts(0, "Apple M2 Pro", "apple_m2", 32 * GIB),)
    assert found.notes == ()


def test_mps_without_sysctl_says_what_is_not_known(tmp_path: Path) -> None:
    found = device_mps.devices(host(tmp_path, "Darwin", "arm64"))
    assert found.devices == (DeviceFacts(0, "Apple silicon", "apple_silicon", None),)
    assert found.notes == ("sysctl is not on the PATH", "sysctl is not on the PATH")


def test_mps_needs_an_arm64_python(tmp_path: Path) -> None:
    found = device_mps.devices(host(tmp_path, "Darwin", "x86_64"))
    assert found.devices == ()
    assert "arm64 Python" in found.notes[0]
    assert device_mps.devices(host(tmp_path, "Linux", "arm64")).devices == ()


@pytest.mark.parametrize(
    ("name", "architecture"),
    [("Apple M1", "apple_m1"), ("Apple M4 Max", "apple_m4"), ("VirtualApple", "apple")],
)
def test_mps_architecture(name: str, architecture: str) -> None:
    assert device_mps.architecture(name) == architecture


# AMD


NODES = device_rocm.NODES


def node(root: Path, number: int, version: int, simd: int = 1216, **properties: int) -> None:
    values = {"simd_count": simd, "gfx_target_version": version, **properties}
    lines = "".join(f"{name} {value}\n" for name, value in values.items())
    write(root, f"{NODES}/{number}/properties", lines)


def bank(root: Path, number: int, index: int, heap: int, size: int) -> None:
    text = f"heap_type {heap}\nsize_in_bytes {size}\nflags 0\n"
    write(root, f"{NODES}/{number}/mem_banks/{index}/properties", text)


@pytest.fixture
def mi300x(tmp_path: Path) -> Path:
    """One CPU and two MI300X, as the kernel of a real host lists them."""
    node(tmp_path, 0, 0, simd=0)
    bank(tmp_path, 0, 0, 0, 512 * GIB)
    for number, unique in ((2, 0xA1), (10, 0xB2)):  # 10 sorts before 2 as a text
        node(tmp_path, number, 90402, drm_render_minor=126 + number, unique_id=unique)
        bank(tmp_path, number, 0, 1, 192 * GIB)
    write(tmp_path, "sys/class/drm/renderD128/device/product_name", "AMD Instinct MI300X\n")
    write(tmp_path, "sys/module/amdgpu/version", "6.12.12\n")
    write(tmp_path, "dev/kfd", "")
    return tmp_path


def test_rocm(mi300x: Path) -> None:
    found = device_rocm.devices(host(mi300x))
    assert found.devices == (
        DeviceFacts(0, "AMD Instinct MI300X", "gfx942", 192 * GIB),
        DeviceFacts(1, "AMD gfx942", "gfx942", 192 * GIB),
    )
    assert found.driver == "6.12.12"
    assert found.notes == ()


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (90402, "gfx942"),
        (90500, "gfx950"),
        (90010, "gfx90a"),
        (90006, "gfx906"),
        (100302, "gfx1032"),
        (110000, "gfx1100"),
        (110501, "gfx1151"),
        (120001, "gfx1201"),
    ],
)
def test_gfx_names(version: int, name: str) -> None:
    assert device_rocm.gfx(version) == name


def test_rocm_without_its_device_file(mi300x: Path) -> None:
    (mi300x / "dev/kfd").unlink()
    found = device_rocm.devices(host(mi300x))
    assert found.devices == ()
    assert "--device /dev/kfd --device /dev/dri" in found.notes[0]


def test_rocm_without_the_right_to_open_it(mi300x: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Tests may run as root, whom no mode stops.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    found = device_rocm.devices(host(mi300x))
    assert found.devices == ()
    assert "--group-add" in found.notes[0]


def test_rocm_notes_a_node_that_cannot_be_read(mi300x: Path) -> None:
    (mi300x / NODES / "2/properties").unlink()
    (mi300x / NODES / "2/properties").mkdir()
    found = device_rocm.devices(host(mi300x))
    assert [device.index for device in found.devices] == [0]
    assert found.notes == ("kfd node 2 cannot be read",)


@pytest.mark.parametrize(
    ("environ", "kept"),
    [
        ({"HIP_VISIBLE_DEVICES": "1"}, ["AMD gfx942"]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, ["AMD gfx942"]),
        # HIP's own name hides the other one.
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}, ["AMD gfx942"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-00000000000000b2"}, ["AMD gfx942"]),
        # The runtime's list comes first; HIP counts within what it leaves.
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, ["AMD gfx942"]),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}, []),
        ({"ROCR_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_rocm_shows_what_is_visible(mi300x: Path, environ: dict[str, str], kept: list[str]) -> None:
    found = device_rocm.devices(host(mi300x, **environ))
    assert [device.name for device in found.devices] == kept
    assert [device.index for device in found.devices] == list(range(len(kept)))
    assert found.notes


def test_rocm_architecture_may_be_overridden(mi300x: Path) -> None:
    found = device_rocm.devices(host(mi300x, HSA_OVERRIDE_GFX_VERSION="9.0.10"))
    assert {device.architecture for device in found.devices} == {"gfx90a"}
    assert found.notes == ("HSA_OVERRIDE_GFX_VERSION=9.0.10: gfx942 is treated as gfx90a",)
    unread = device_rocm.devices(host(mi300x, HSA_OVERRIDE_GFX_VERSION="gfx90a"))
    assert {device.architecture for device in unread.devices} == {"gfx942"}
    assert "is not MAJOR.MINOR.STEPPING" in unread.notes[0]


# NVIDIA

Card = tuple[str, tuple[int, int], int | None, str]
H100_CARD: Card = ("NVIDIA H100 80GB HBM3", (9, 0), 80 * GIB, "GPU-1111-aaaa")
RTX_5090_CARD: Card = ("NVIDIA GeForce RTX 5090", (12, 0), 32 * GIB, "GPU-2222-bbbb")
GB10_CARD: Card = ("NVIDIA GB10", (12, 1), None, "GPU-3333-cccc")


class FakeNvml:
    """NVML as ctypes sees it: real C function pointers, so that every argument is converted."""

    def __init__(self, cards: Sequence[Card], init: int = 0) -> None:
        self.cards = cards
        self.shut_down = 0

        def count(number: Any) -> int:
            number[0] = len(cards)
            return 0

        def handle(index: int, out: Any) -> int:
            out[0] = index + 1  # a null handle would hide a mistake
            return 0

        def capability(card: int, major: Any, minor: Any) -> int:
            major[0], minor[0] = cards[card - 1][1]
            return 0

        def memory(card: int, out: Any) -> int:
            size = cards[card - 1][2]
            if size is None:
                return 3  # NVML_ERROR_NOT_SUPPORTED
            out[0] = size
            return 0

        def text(out: int, room: int, value: str) -> int:
            data = value.encode() + b"\0"
            assert len(data) <= room
            ctypes.memmove(out, data, len(data))
            return 0

        def shutdown() -> int:
            self.shut_down += 1
            return 0

        def words(code: int) -> bytes:
            return b"Driver Not Loaded"

        c = ctypes.CFUNCTYPE
        pointer, unsigned = c_void_p, c_uint
        self.nvmlInit_v2 = c(c_int)(lambda: init)
        self.nvmlShutdown = c(c_int)(shutdown)
        self.nvmlErrorString = words  # a text returned through C would leak
        self.nvmlDeviceGetCount_v2 = c(c_int, POINTER(c_uint))(count)
        self.nvmlDeviceGetHandleByIndex_v2 = c(c_int, unsigned, POINTER(c_void_p))(handle)
        self.nvmlDeviceGetCudaComputeCapability = c(c_int, pointer, POINTER(c_int), POINTER(c_int))(
            capability
        )
        self.nvmlDeviceGetMemoryInfo = c(c_int, pointer, POINTER(ctypes.c_ulonglong))(memory)
        named = c(c_int, pointer, pointer, unsigned)
        self.nvmlDeviceGetName = named(lambda h, out, room: text(out, room, cards[h - 1][0]))
        self.nvmlDeviceGetUUID = named(lambda h, out, room: text(out, room, cards[h - 1][3]))
        self.nvmlSystemGetDriverVersion = c(c_int, pointer, unsigned)(
            lambda out, room: text(out, room, "580.95.05")
        )


def cast_memory(library: FakeNvml) -> FakeNvml:
    """Let the fake take the probe's own structure where C would take any pointer."""
    plain = library.nvmlDeviceGetMemoryInfo

    def accepting(handle: Any, reference: Any) -> int:
        return int(plain(handle, ctypes.cast(reference, POINTER(ctypes.c_ulonglong))))

    library.nvmlDeviceGetMemoryInfo = accepting  # type: ignore[assignment]
    return library


def nvml(*cards: Card, init: int = 0) -> FakeNvml:
    return cast_memory(FakeNvml(cards, init))


def test_cuda_by_nvml(tmp_path: Path) -> None:
    library = nvml(H100_CARD, H100_CARD)
    found = device_cuda.devices(host(tmp_path), library)
    assert found.devices == (
        DeviceFacts(0, "NVIDIA H100 80GB HBM3", "sm_90", 80 * GIB),
        DeviceFacts(1, "NVIDIA H100 80GB HBM3", "sm_90", 80 * GIB),
    )
    assert found.driver == "580.95.05"
    assert found.notes == ()
    assert library.shut_down == 1


def test_cuda_without_memory_of_its_own(tmp_path: Path) -> None:
    found = device_cuda.devices(host(tmp_path), nvml(GB10_CARD))
    assert found.devices == (DeviceFacts(0, "NVIDIA GB10", "sm_121", None),)


def test_cuda_when_nvml_refuses(tmp_path: Path) -> None:
    found = device_cuda.devices(host(tmp_path), nvml(H100_CARD, init=9))
    assert found.devices == ()
    assert found.notes == ("NVML is installed but answers nvmlInit_v2: Driver Not Loaded (9)",)


def test_cuda_when_nvml_has_no_device(tmp_path: Path) -> None:
    assert device_cuda.devices(host(tmp_path), nvml()).notes == ("NVML finds no NVIDIA device",)


def test_cuda_when_nvml_is_too_old(tmp_path: Path) -> None:
    class Old:
        nvmlShutdown = staticmethod(lambda: 0)

    assert "too old" in device_cuda.devices(host(tmp_path), Old()).notes[0]


def test_cuda_by_nvidia_smi(tmp_path: Path) -> None:
    write(tmp_path, "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64  580.95.05")
    tool(
        tmp_path,
        "nvidia-smi",
        'echo "0, NVIDIA GeForce RTX 4090, 8.9, 24564, GPU-11, 570.10"\n'
        'echo "1, NVIDIA GB10, 12.1, [N/A], GPU-22, 570.10"',
    )
    found = device_cuda.devices(host(tmp_path, CUDA_DEVICE_ORDER="PCI_BUS_ID"))
    assert found.devices == (
        DeviceFacts(0, "NVIDIA GeForce RTX 4090", "sm_89", 24564 * 1024**2),
        DeviceFacts(1, "NVIDIA GB10", "sm_121", None),
    )
    assert found.driver == "570.10"
    assert found.notes == ()


@pytest.mark.parametrize(
    ("script", "note"),
    [
        ("echo oops >&2; exit 9", "nvidia-smi exited with 9: oops"),
        ("echo garbage", "nvidia-smi printed 'garbage'"),
    ],
)
def test_cuda_when_nvidia_smi_fails(tmp_path: Path, script: str, note: str) -> None:
    write(tmp_path, "dev/nvidiactl", "")
    tool(tmp_path, "nvidia-smi", script)
    found = device_cuda.devices(host(tmp_path))
    assert found.devices == ()
    assert found.notes == (note,)


def test_cuda_when_nvidia_smi_is_missing_or_cannot_run(tmp_path: Path) -> None:
    write(tmp_path, "dev/nvidiactl", "")
    assert device_cuda.devices(host(tmp_path)).notes == ("nvidia-smi is not on the PATH",)
    tool(tmp_path, "nvidia-smi", "")
    (tmp_path / "bin/nvidia-smi").write_bytes(b"\x7fELF nonsense")
    assert "nvidia-smi" in device_cuda.devices(host(tmp_path)).notes[0]


def test_cuda_when_nvidia_smi_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyattn.probe.host.TOOL_SECONDS", 0.2)
    write(tmp_path, "dev/nvidiactl", "")
    tool(tmp_path, "nvidia-smi", "while :; do :; done")
    assert device_cuda.devices(host(tmp_path)).notes == ("nvidia-smi did not finish within 0 s",)


def test_cuda_does_not_run_a_tool_where_there_is_no_driver(tmp_path: Path) -> None:
    tool(tmp_path, "nvidia-smi", "exit 1")
    assert device_cuda.devices(host(tmp_path)) == device_cuda.Found()


def test_cuda_tells_a_gpu_without_driver_from_no_gpu(tmp_path: Path) -> None:
    for number, (vendor, kind) in enumerate(
        [("0x8086", "0x030000"), ("0x10de", "0x040300"), ("0x10de", "0x030200")]
    ):
        write(tmp_path, f"sys/bus/pci/devices/0000:0{number}:00.0/vendor", f"{vendor}\n")
        write(tmp_path, f"sys/bus/pci/devices/0000:0{number}:00.0/class", f"{kind}\n")
    (note,) = device_cuda.undriven(host(tmp_path))
    assert "--gpus all" in note
    # NVIDIA sound devices (the second one) are no GPUs.
    (tmp_path / "sys/bus/pci/devices/0000:02:00.0/vendor").write_text("0x1002\n")
    assert device_cuda.undriven(host(tmp_path)) == ()


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("0", ["sm_90"]),
        ("1,0", ["sm_120", "sm_90"]),
        ("GPU-2222", ["sm_120"]),
        ("GPU-1111-aaaa,GPU-2222-bbbb", ["sm_90", "sm_120"]),
        ("1,7,0", ["sm_120"]),  # an invalid entry ends the list
        ("-1", []),
        ("", []),
        ("GPU", []),  # ambiguous
        ("0,0", ["sm_90"]),
    ],
)
def test_cuda_shows_what_is_visible(tmp_path: Path, value: str, kept: list[str]) -> None:
    fake = host(tmp_path, CUDA_VISIBLE_DEVICES=value, CUDA_DEVICE_ORDER="PCI_BUS_ID")
    found = device_cuda.devices(fake, nvml(H100_CARD, RTX_5090_CARD))
    assert [device.architecture for device in found.devices] == kept
    assert [device.index for device in found.devices] == list(range(len(kept)))
    assert bool(found.notes) is (len(kept) < 2)


def test_cuda_in_a_mig_slice(tmp_path: Path) -> None:
    fake = host(tmp_path, CUDA_VISIBLE_DEVICES="MIG-5c89-77")
    found = device_cuda.devices(fake, nvml(H100_CARD, H100_CARD))
    assert found.devices == (DeviceFacts(0, "NVIDIA H100 80GB HBM3 (MIG slice)", "sm_90", None),)
    assert found.notes == ("CUDA_VISIBLE_DEVICES=MIG-5c89-77 is a MIG slice",)


def test_cuda_notes_that_a_mixed_host_may_be_numbered_otherwise(tmp_path: Path) -> None:
    cards = (H100_CARD, RTX_5090_CARD)
    assert "PCI_BUS_ID" in device_cuda.devices(host(tmp_path), nvml(*cards)).notes[0]
    ordered = host(tmp_path, CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert device_cuda.devices(ordered, nvml(*cards)).notes == ()


# Visibility in general


@settings(deadline=None)
@given(st.integers(0, 5), st.text(alphabet="0123456789,-GPU ", max_size=12))
def test_visible_devices_are_a_selection_in_order(count: int, value: str) -> None:
    devices = tuple(DeviceFacts(index, f"d{index}", "sm_90") for index in range(count))
    shown, notes = visible(devices, "V", value, tuple(f"GPU-{index}" for index in range(count)))
    assert [device.index for device in shown] == list(range(len(shown)))
    names = [device.name for device in shown]
    assert len(set(names)) == len(names)
    assert set(names) <= {device.name for device in devices}
    assert bool(notes) is (len(shown) < count)
    assert visible(devices, "V", None) == (devices, ())


def test_tools_do_not_inherit_the_callers_input(tmp_path: Path) -> None:
    tool(tmp_path, "reads", "read line; echo got:$line")
    assert (tmp_path / "bin/reads").stat().st_mode & stat.S_IXUSR
    assert host(tmp_path).tool("reads").text == "got:\n"
