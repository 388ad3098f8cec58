"""Whatever a package does at import is a result, and never our end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polyattn.facts import DeviceFacts, PackageFacts
from polyattn.probe import Host
from polyattn.probe.child import run, shortened
from polyattn.probe.imports import check, module, seen_by_torch, with_imports
from polyattn.vocabulary import PackageState, PlatformName, ProbeLevel
from tests.unit.polyattn.machines import H100, M2, MI300X

SECONDS = 60.0


def host(site: Path) -> Host:
    """This machine, with one more folder of packages, first."""
    return Host(python_path=(str(site), *sys.path))


def verdict(site: Path, source: str, seconds: float = SECONDS) -> PackageFacts:
    """What the probe says of a package whose __init__ is this."""
    (site / "fake_kernels").mkdir()
    (site / "fake_kernels/__init__.py").write_text(source)
    installed = PackageFacts("fake-kernels", PackageState.INSTALLED, "1.0")
    (result,) = check([installed], host(site), seconds)
    assert (result.name, result.version) == ("fake-kernels", "1.0")
    return result


def test_a_package_that_imports(tmp_path: Path) -> None:
    result = verdict(tmp_path, "value = 1")
    assert (result.state, result.detail) == (PackageState.IMPORTS, None)


NOISE = """
import os, sys
print("warming up", end="")
sys.stdout.write("{} not json\\n" * 3)
os.write(1, b"\\xff\\xfe raw")
sys.stdout = sys.stderr = None
os.close(2)
"""


@pytest.mark.parametrize(
    "source",
    [
        NOISE,
        "import atexit, os; atexit.register(os._exit, 7)",  # what happens at exit is no import
        "import threading, time; threading.Thread(target=time.sleep, args=[60]).start()",
        "import sys; sys.path.clear()",
        "import subprocess; subprocess.Popen(['sleep', '60'])",  # holds our files open
    ],
    ids=["prints", "exit handler", "thread", "clears the path", "leaves a process"],
)
def test_noise_is_no_failure(tmp_path: Path, source: str) -> None:
    assert verdict(tmp_path, source).state is PackageState.IMPORTS


@pytest.mark.parametrize(
    ("source", "detail"),
    [
        (
            "raise ImportError('libcuda.so.1: cannot open shared object file')",
            "ImportError: libcuda.so.1: cannot open shared object file",
        ),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise OSError('undefined symbol: _ZN3c10')", "OSError: undefined symbol: _ZN3c10"),
        ("raise RuntimeError('0 active drivers ([])')", "RuntimeError: 0 active drivers ([])"),
        ("assert False", "AssertionError"),
        ("raise ValueError('first\\n  second')", "ValueError: first second"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("def (", "SyntaxError: invalid syntax"),
        ("import os; os._exit(5)", "the process ended itself with exit code 5"),
        ("import os; os._exit(0)", "the process ended itself with exit code 0"),
        (
            "import os; os.write(2, b'terminate called\\n'); os.abort()",
            "the process was killed by SIGABRT: terminate called",
        ),
        ("import ctypes; ctypes.string_at(0)", "the process was killed by SIGSEGV"),
    ],
    ids=lambda text: text[:30],
)
def test_what_breaks_is_said(tmp_path: Path, source: str, detail: str) -> None:
    result = verdict(tmp_path, source)
    assert result.state is PackageState.BROKEN
    assert result.detail is not None
    assert result.detail.startswith(f"import fake_kernels: {detail}")


def test_what_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    written = tmp_path / "grandchild"
    source = f"""
import pathlib, subprocess, time
child = subprocess.Popen(["sleep", "600"])
pathlib.Path({str(written)!r}).write_text(str(child.pid))
while True:
    time.sleep(1)
"""
    result = verdict(tmp_path, source, seconds=5.0)
    assert result.state is PackageState.BROKEN
    assert result.detail == "import fake_kernels: did not finish within 5 s"
    state = Path(f"/proc/{written.read_text()}/stat")

    def ended() -> bool:
        # Gone, or dead and not yet collected by whoever inherited it.
        try:
            return state.read_text().rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    # A killed process may still be running when kill() returns, on a busy machine for long.
    for _ in range(3000):
        if ended():
            break
        time.sleep(0.01)
    assert ended()


INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell's children ignore it
from polyattn.probe import Host
from polyattn.probe.child import run
body = '''
import os, pathlib, time
pathlib.Path(arguments[0]).write_text(str(os.getpid()))
time.sleep(600)
'''
run(body, sys.argv[1], host=Host(), seconds=600.0)
"""


def test_ctrl_c_ends_the_child_too(tmp_path: Path) -> None:
    written = tmp_path / "child"
    probing = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(written)], stderr=subprocess.PIPE, text=True
    )
    while not (written.exists() and written.read_text()):
        assert probing.poll() is None
        time.sleep(0.01)
    probing.send_signal(signal.SIGINT)
    _, said = probing.communicate(timeout=120)
    assert said.splitlines()[-1] == "KeyboardInterrupt"
    with pytest.raises(ProcessLookupError):
        os.kill(int(written.read_text()), 0)


def test_only_installed_packages_are_imported(tmp_path: Path) -> None:
    (tmp_path / "fake_kernels.py").write_text("raise RuntimeError")
    left = [
        PackageFacts("fake-kernels", state, None, "why")
        for state in PackageState
        if state is not PackageState.INSTALLED
    ]
    assert check(left, host(tmp_path), SECONDS) == tuple(left)


def test_the_module_that_the_kernel_needs_is_imported() -> None:
    # facts/packaging.md: hazards 3 and 7, and section 2 of sgl_kernel.
    assert module("amd-aiter") == "aiter.ops"
    assert module("flash-attn-4") == "flash_attn.cute"
    assert module("sglang-kernel") == "sgl_kernel.flash_attn"
    assert module("some-other") == "some_other"


def test_a_file_in_the_working_folder_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('not the real one')")
    monkeypatch.chdir(tmp_path)
    path = tuple(entry for entry in sys.path if entry)
    outcome = run("report(value=json.loads('5'))", host=Host(python_path=path), seconds=SECONDS)
    assert (outcome.value, outcome.failure) == (5, None)


def test_the_environment_is_the_hosts(tmp_path: Path) -> None:
    fake = Host({**os.environ, "PROBED": "yes"})
    body = "report(value=[os.environ['PROBED'], arguments])"
    assert run(body, "a", "b c", host=fake, seconds=SECONDS).value == ["yes", ["a", "b c"]]


def test_long_errors_keep_both_ends() -> None:
    short = shortened("cause " + "x" * 5000 + " remedy")
    assert short.startswith("cause x")
    assert short.endswith("x remedy")
    assert len(short) < 500
    assert shortened("as it is") == "as it is"


# What torch says of itself


def seen(**changes: object) -> dict[str, object]:
    return {
        "version": "2.14.1",
        "cuda": None,
        "hip": None,
        "architectures": [],
        "mps": False,
        "gpus": [],
        "why": None,
        **changes,
    }


def test_torchs_devices_stand_above_the_static_ones() -> None:
    gpus = [[0, "NVIDIA H100", "sm_90", 5], [1, "NVIDIA H200", "sm_90", 6]]
    facts = seen_by_torch(H100, seen(cuda="13.0", architectures=["sm_80", "sm_90"], gpus=gpus))
    assert facts.platform is PlatformName.CUDA
    assert facts.devices[1] == DeviceFacts(1, "NVIDIA H200", "sm_90", 6)
    assert facts.torch is not None
    assert facts.torch.architectures == ("sm_80", "sm_90")


def test_a_hip_build_is_rocm() -> None:
    gpu = [0, "AMD Instinct MI300X", "gfx942", 5]
    assert seen_by_torch(H100, seen(hip="7.2", gpus=[gpu])).platform is PlatformName.ROCM


@pytest.mark.parametrize(
    ("facts", "words", "note"),
    [
        (
            H100,
            {"cuda": "13.0", "why": "The NVIDIA driver on your system is too old"},
            "torch 2.14.1 cannot use NVIDIA CUDA here: The NVIDIA driver on your system is too old",
        ),
        (MI300X, {"hip": "7.2"}, "torch 2.14.1 cannot use AMD ROCm here"),
        (M2, {}, "torch 2.14.1 cannot use Apple MPS here"),
    ],
)
def test_what_torch_cannot_use_becomes_the_cpu(
    facts: object, words: dict[str, object], note: str
) -> None:
    result = seen_by_torch(facts, seen(**words))  # type: ignore[arg-type]
    assert result.platform is PlatformName.CPU
    assert result.notes == (note,)


def test_a_mac_keeps_its_metal() -> None:
    assert seen_by_torch(M2, seen(mps=True)).devices == M2.devices


def test_this_machines_torch_imports() -> None:
    from polyattn.probe import static_facts

    facts = with_imports(static_facts(), Host())
    assert facts.level is ProbeLevel.IMPORT
    assert facts.package("torch").state is PackageState.IMPORTS
    assert facts.torch is not None
    assert facts.torch.version == facts.package("torch").version
