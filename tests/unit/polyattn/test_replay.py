"""Decisions replayed from the facts of machines that we do not have.

What runs where is written down by hand with its source, never taken from the selector. Packages
are in every state that a probe can find. `facts/` are notes of this project's research; their
own sources stand in them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest

from polyattn import capabilities
from polyattn.facts import DeviceFacts, PackageFacts, PlatformFacts, TorchFacts
from polyattn.preferences import preferences_from_options
from polyattn.selector import select, usable
from polyattn.vocabulary import Fidelity, PackageState, PlatformName, ProbeLevel
from tests.unit.polyattn.machines import GIB, call

# Versions that selection may meet today (facts/packaging.md section 1).
VERSIONS = {
    "torch": "2.14.1",
    "triton": "3.8.0",
    "flash-attn": "2.8.3.post2",
    "flash-attn-3": "3.0.0b1",
    "flash-attn-4": "4.0.0b36",
    "sglang-kernel": "0.4.10",
    "sageattention": "2.2.0",
    "sageattn3": "1.0.0",
    "amd-aiter": "0.1.7",
}
# Which rows stand on which package.
STANDS_ON = {
    "flash-attn": {"fa2"},
    "flash-attn-3": {"fa3_hopper"},
    "flash-attn-4": {"fa4"},
    "sglang-kernel": {"fa3"},
    "sageattention": {"sage1", "sage2"},
    "sageattn3": {"sage3"},
    "amd-aiter": {"aiter"},
    # Both SageAttentions compile Triton kernels without declaring it.
    "triton": {"sage1", "sage2"},
}
NEW_SAGE, OLD_SAGE = "2.2.0", "1.0.6"
ALWAYS = {"sdpa"}


@dataclass(frozen=True)
class Machine:
    """A machine, and by hand: which dense rows run on it with every package right.

    `automatic` is what a plain half-precision call gets: first with everything installed, then
    with the package of the one before it missing, and so on.
    """

    name: str
    platform: PlatformName
    architectures: tuple[str, ...]
    runs: set[str]
    automatic: tuple[str, ...]
    machine: str = "x86_64"
    memory: int = 80

    def facts(self, **versions: str) -> PlatformFacts:
        wanted = {**VERSIONS, **versions}
        return PlatformFacts(
            platform=self.platform,
            system="Darwin" if self.platform is PlatformName.MPS else "Linux",
            machine=self.machine,
            python="3.12.7",
            level=ProbeLevel.IMPORT,
            torch=TorchFacts(
                VERSIONS["torch"],
                cuda="13.0" if self.platform is PlatformName.CUDA else None,
                hip="7.2" if self.platform is PlatformName.ROCM else None,
            ),
            devices=tuple(
                DeviceFacts(index, f"{self.name} {index}", architecture, self.memory * GIB)
                for index, architecture in enumerate(self.architectures)
            ),
            packages=tuple(PackageFacts(n, PackageState.IMPORTS, v) for n, v in wanted.items()),
        )


CUDA, ROCM = PlatformName.CUDA, PlatformName.ROCM
MACHINES = (
    # "Cannot use FlashAttention backend for Volta and Turing GPUs", facts/sglang-diffusion.md 2;
    # SageAttention's bf16 needs sm_80: thu-ml/SageAttention#63.
    Machine("RTX 2080 Ti", CUDA, ("sm_75",), set(), ("sdpa",), memory=11),
    # sglang-kernel's flash_ops hold cubins for 80, 86, 90a: facts/packaging.md section 1.
    Machine(
        "A100",
        CUDA,
        ("sm_80",),
        {"fa2", "fa3", "fa3_hopper", "fa4", "sage"},
        ("fa3", "fa3_hopper", "fa2", "fa4", "sdpa"),
    ),
    # FA2's cubins for 8.0 run on 8.6; flash_attn_interface is built for 9.0a and 8.0 only.
    Machine(
        "RTX 3090",
        CUDA,
        ("sm_86",),
        {"fa2", "fa3", "fa4", "sage"},
        ("fa3", "fa2", "fa4", "sdpa"),
        memory=24,
    ),
    # sgl-project/sglang#38980: FA3 is accepted on 8.9 and fails with "invalid argument".
    Machine(
        "RTX 4090",
        CUDA,
        ("sm_89",),
        {"fa2", "fa4", "sage"},
        ("fa2", "fa4", "sdpa"),
        memory=24,
    ),
    Machine(
        "H100",
        CUDA,
        ("sm_90",),
        {"fa2", "fa3", "fa3_hopper", "fa4", "sage"},
        ("fa3", "fa3_hopper", "fa4", "fa2", "sdpa"),
    ),
    # A slice is a smaller device of the same architecture.
    Machine(
        "H100 MIG 1g.10gb",
        CUDA,
        ("sm_90",),
        {"fa2", "fa3", "fa3_hopper", "fa4", "sage"},
        ("fa3", "fa3_hopper", "fa4", "fa2", "sdpa"),
        memory=10,
    ),
    # The aarch64 wheel of sglang-kernel has no flash_ops: facts/packaging.md section 1.
    Machine(
        "GH200",
        CUDA,
        ("sm_90",),
        {"fa2", "fa3_hopper", "fa4", "sage"},
        ("fa3_hopper", "fa4", "fa2", "sdpa"),
        machine="aarch64",
    ),
    # SageAttention 2 raises ValueError on 10.0, SageAttention 3 is built for 10.0a: section 1.
    # cuDNN, torch's own choice, leads on 10.x: sgl-project/sglang#33655.
    Machine("B200", CUDA, ("sm_100",), {"fa2", "fa4", "sage1", "sage3"}, ("sdpa",)),
    # 10.0a kernels do not run on 10.3, and FA2 has no entry for it: sections 3 and 4.
    Machine("B300", CUDA, ("sm_103",), {"fa4", "sage1"}, ("sdpa",)),
    # torch_sdpa on 12.x until measured: sgl-project/sglang#15342, facts/sglang-diffusion.md 2.
    Machine("RTX 5090", CUDA, ("sm_120",), {"fa2", "fa4", "sage", "sage3"}, ("sdpa",), memory=32),
    Machine(
        "GB10",
        CUDA,
        ("sm_121",),
        {"fa2", "fa4", "sage", "sage3"},
        ("sdpa",),
        machine="aarch64",
        memory=128,
    ),
    # What both devices can run, where the device of a call is not known.
    Machine("RTX 3090 + RTX 5090", CUDA, ("sm_86", "sm_120"), {"fa2", "fa4", "sage"}, ("sdpa",)),
    # AITER's wheels hold code objects for gfx942 and gfx950 only: section 1.
    Machine("MI210", ROCM, ("gfx90a",), {"fa2"}, ("fa2", "sdpa")),
    Machine("MI300X", ROCM, ("gfx942",), {"fa2", "aiter"}, ("fa2", "sdpa"), memory=192),
    Machine("MI355X", ROCM, ("gfx950",), {"fa2", "aiter"}, ("fa2", "sdpa"), memory=288),
    # AITER rejects gfx1100 (sgl-project/sglang#36867); FA2's CK kernels are for CDNA.
    Machine("RX 7900 XTX", ROCM, ("gfx1100",), set(), ("sdpa",), memory=24),
    Machine(
        "Apple M3 Max",
        PlatformName.MPS,
        ("apple_m3_max",),
        {"sdpa_chunked"},
        ("sdpa",),
        machine="arm64",
    ),
    # torch computes bfloat16 on any processor, with and without instructions for it.
    Machine("Xeon with AMX", PlatformName.CPU, ("x86_64",), set(), ("sdpa",)),
    Machine("Core i7 without AVX-512", PlatformName.CPU, ("x86_64",), set(), ("sdpa",)),
    Machine("Graviton", PlatformName.CPU, ("aarch64",), set(), ("sdpa",), machine="aarch64"),
)
by_machine = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)


def expected(machine: Machine, sage: str) -> set[str]:
    """The hand-written rows, with `sage` as what this version of the package is."""
    one = "sage2" if sage == NEW_SAGE else "sage1"
    rows = {one if row == "sage" else row for row in machine.runs} | ALWAYS
    return rows if one == "sage1" else rows - {"sage1"}


def runs(facts: PlatformFacts) -> set[str]:
    """The dense rows that run; tests/unit/polyattn/test_sparse_* judge the others."""
    can = {name for name, reason in usable(facts).items() if reason is None}
    return {name for name in can if capabilities.row(name).fidelity is not Fidelity.SPARSE}


@by_machine
@pytest.mark.parametrize("sage", [NEW_SAGE, OLD_SAGE])
def test_with_every_package_right(machine: Machine, sage: str) -> None:
    assert runs(machine.facts(sageattention=sage)) == expected(machine, sage)


@by_machine
def test_automatic_choice_goes_down_its_order(machine: Machine) -> None:
    facts = machine.facts()
    package_of = {row: package for package, rows in STANDS_ON.items() for row in rows}
    for row in machine.automatic:
        assert select(call(), facts).implementation == row
        if row != "sdpa":
            facts = changed(facts, PackageFacts(package_of[row], PackageState.ABSENT))


def changed(facts: PlatformFacts, package: PackageFacts) -> PlatformFacts:
    others = tuple(p for p in facts.packages if p.name != package.name)
    return dataclasses.replace(facts, packages=(*others, package))


# What the import probe says of a package that does not work (polyattn/probe/child.py).
BROKEN = {
    "absent": (PackageState.ABSENT, None),
    "wrong CUDA": (PackageState.BROKEN, "ImportError: libcudart.so.12: cannot open shared object"),
    # facts/reports.md 14
    "wrong torch ABI": (PackageState.BROKEN, "ImportError: undefined symbol: _ZN3c104cuda"),
    "raises anything": (PackageState.BROKEN, "KeyError: 'HOME'"),
    "exits": (PackageState.BROKEN, "the process ended itself with exit code 3"),
    "hangs": (PackageState.BROKEN, "did not finish within 120 s"),
    "killed": (PackageState.BROKEN, "the process was killed by SIGSEGV"),
    "namesake": (PackageState.FOREIGN, "another project under the same import name"),
}


@by_machine
@pytest.mark.parametrize("package", STANDS_ON)
@pytest.mark.parametrize("how", BROKEN)
def test_a_package_in_a_bad_state_takes_its_rows_with_it_and_no_others(
    machine: Machine, package: str, how: str
) -> None:
    state, detail = BROKEN[how]
    facts = changed(machine.facts(), PackageFacts(package, state, VERSIONS[package], detail))
    assert runs(facts) == expected(machine, NEW_SAGE) - STANDS_ON[package]
    for row in STANDS_ON[package] & expected(machine, NEW_SAGE):
        reason = usable(facts)[row] or ""
        assert package in reason
        assert (detail or "not installed") in reason
    # Whatever is broken, an unasked-for call is served.
    assert select(call(), facts).implementation in expected(machine, NEW_SAGE)


# Binaries that were read and lack the device's kernels: "imports but no kernel".
@pytest.mark.parametrize(
    ("name", "package", "held", "runs_there"),
    [
        # A cubin runs on its major version, from its minor version on (CUDA's rule).
        ("A100", "flash-attn", ("sm_80", "sm_90"), True),
        ("RTX 4090", "flash-attn", ("sm_80", "sm_90"), True),
        ("RTX 5090", "flash-attn", ("sm_80", "sm_90", "sm_100"), False),
        ("GB10", "flash-attn", ("sm_80", "sm_120"), True),
        ("H100", "flash-attn", ("sm_80",), False),
        # "a" binds a kernel to its own device.
        ("H100", "sglang-kernel", ("sm_80", "sm_86", "sm_90a"), True),
        ("A100", "sglang-kernel", ("sm_90a",), False),
        ("RTX 3090", "sglang-kernel", ("sm_80", "sm_90a"), True),
        ("B200", "sageattn3", ("sm_100a", "sm_120a"), True),
        ("GB10", "sageattn3", ("sm_100a", "sm_120a"), False),
        ("RTX 5090", "sageattention", ("sm_80", "sm_89"), False),
        ("MI300X", "flash-attn", ("gfx942",), True),
        ("MI210", "flash-attn", ("gfx942",), False),
    ],
)
def test_binaries_without_the_devices_kernels(
    name: str, package: str, held: tuple[str, ...], runs_there: bool
) -> None:
    machine = next(machine for machine in MACHINES if machine.name == name)
    read = PackageFacts(package, PackageState.IMPORTS, VERSIONS[package], None, held)
    facts = changed(machine.facts(), read)
    rows = STANDS_ON[package] & expected(machine, NEW_SAGE)
    assert bool(rows & runs(facts)) is runs_there
    if not runs_there:
        assert all(machine.architectures[0] in (usable(facts)[row] or "") for row in rows)


@pytest.mark.parametrize(
    ("name", "cuda", "row", "runs_there"),
    [
        # facts/packaging.md section 1; 8.9's accumulation mode: thu-ml/SageAttention PR 202.
        ("RTX 4090", "12.6", "sage2", False),
        ("RTX 4090", "12.8", "sage2", True),
        ("A100", "12.0", "sage2", True),
        ("A100", "11.8", "sage2", False),
        ("H100", "12.1", "sage2", False),
        ("H100", "12.4", "sage2", True),
        ("RTX 5090", "12.6", "sage2", False),
        ("B200", "12.6", "sage3", False),
        ("B200", "12.8", "sage3", True),
        ("H100", "12.1", "fa3_hopper", False),
        ("H100", "12.3", "fa3_hopper", True),
        ("RTX 5090", "12.6", "fa2", False),
        ("A100", "11.8", "fa2", True),
    ],
)
def test_the_cuda_version_that_a_kernel_needs(
    name: str, cuda: str, row: str, runs_there: bool
) -> None:
    machine = next(machine for machine in MACHINES if machine.name == name)
    facts = dataclasses.replace(machine.facts(), torch=TorchFacts("2.10.0", cuda=cuda))
    reason = usable(facts)[row]
    assert (reason is None) is runs_there
    assert runs_there or f"torch is built for {cuda}" in (reason or "")


def test_a_driver_that_is_too_old_leaves_the_processor() -> None:
    # What the import probe makes of torch's refusal (polyattn/probe/imports.py seen_by_torch).
    note = "torch 2.14.1 cannot use NVIDIA CUDA here: The NVIDIA driver on your system is too old"
    h100 = next(machine for machine in MACHINES if machine.name == "H100").facts()
    facts = dataclasses.replace(h100, platform=PlatformName.CPU, devices=(), notes=(note,))
    assert runs(facts) == ALWAYS
    assert select(call(), facts, preferences_from_options("fa", environ={})).substitution


@pytest.mark.parametrize(
    ("device", "automatic", "runs_there"),
    [(0, "fa3", {"fa2", "fa3", "fa4", "sage2"}), (1, "sdpa", {"fa2", "fa4", "sage2", "sage3"})],
)
def test_a_mixed_host_is_judged_device_by_device(
    device: int, automatic: str, runs_there: set[str]
) -> None:
    both = next(machine for machine in MACHINES if len(machine.architectures) == 2).facts()
    facts = both.for_device(device)
    assert runs(facts) == runs_there | ALWAYS
    assert select(call(device=device), facts).implementation == automatic


@by_machine
def test_facts_survive_their_json(machine: Machine) -> None:
    facts = machine.facts()
    assert PlatformFacts.from_json(facts.to_json()) == facts
