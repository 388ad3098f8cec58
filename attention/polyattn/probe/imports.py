"""The import level: does each installed package import, and what does torch itself see."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Final

from polyattn.facts import DeviceFacts, PackageFacts, PlatformFacts, TorchFacts
from polyattn.platforms import platform
from polyattn.probe.child import run
from polyattn.probe.host import Host
from polyattn.vocabulary import PackageState, PlatformName, ProbeLevel

SECONDS: Final = 120.0  # torch from a cold disk takes most of a minute

# distribution -> the module that its implementation needs. The top-level name is not enough:
# `flash_attn` may be FlashAttention 2 without `cute`, `aiter` may be the asyncio helper, and
# `sgl_kernel` imports on machines where its attention does not.
MODULES: Final = {
    "amd-aiter": "aiter.ops",
    "flash-attn": "flash_attn",
    "flash-attn-3": "flash_attn_interface",
    "flash-attn-4": "flash_attn.cute",
    "sageattention": "sageattention",
    "sageattn3": "sageattn3",
    "sglang-kernel": "sgl_kernel.flash_attn",
    "torch": "torch",
    "triton": "triton",
}

_IMPORT: Final = """
import importlib
importlib.import_module(arguments[0])
"""

# get_arch_list() is empty without a device; the list that it reads is not.
_TORCH: Final = """
import torch
gpus = []
why = None
flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)
if torch.version.cuda or torch.version.hip:
    try:
        torch.cuda.init()
        for index in range(torch.cuda.device_count()):
            seen = torch.cuda.get_device_properties(index)
            gcn = getattr(seen, "gcnArchName", "").partition(":")[0]
            name = gcn if torch.version.hip else f"sm_{seen.major}{seen.minor}"
            gpus.append([index, seen.name, name, seen.total_memory])
    except (RuntimeError, AssertionError) as error:
        why = str(error)
report(value={
    "version": torch.__version__,
    "cuda": torch.version.cuda,
    "hip": torch.version.hip,
    "architectures": (flags() or "").split(),
    "mps": torch.backends.mps.is_available(),
    "gpus": gpus,
    "why": why,
})
"""


def with_imports(facts: PlatformFacts, host: Host, seconds: float = SECONDS) -> PlatformFacts:
    """The facts after importing every installed package, each in a process of its own."""
    packages = check(facts.packages, host, seconds)
    deeper = dataclasses.replace(facts, level=ProbeLevel.IMPORT, packages=packages)
    if deeper.package("torch").state is not PackageState.IMPORTS:
        return deeper
    outcome = run(_TORCH, host=host, seconds=seconds)
    if outcome.failure is not None:
        note = f"torch imports, but asking it for its devices failed: {outcome.failure}"
        return dataclasses.replace(deeper, notes=(*deeper.notes, note))
    return seen_by_torch(deeper, outcome.value)


def check(
    packages: Iterable[PackageFacts], host: Host, seconds: float = SECONDS
) -> tuple[PackageFacts, ...]:
    """Each package with what its import did; those that are not installed stay as they are."""

    def checked(package: PackageFacts) -> PackageFacts:
        if package.state is not PackageState.INSTALLED:
            return package
        outcome = run(_IMPORT, module(package.name), host=host, seconds=seconds)
        if outcome.failure is None:
            return dataclasses.replace(package, state=PackageState.IMPORTS)
        detail = f"import {module(package.name)}: {outcome.failure}"
        return dataclasses.replace(package, state=PackageState.BROKEN, detail=detail)

    # One after the other: a thread that waits for its child would not see Ctrl-C.
    return tuple(checked(package) for package in packages)


def module(distribution: str) -> str:
    """The module whose import proves a distribution usable."""
    return MODULES.get(distribution, distribution.replace("-", "_"))


def seen_by_torch(facts: PlatformFacts, seen: dict[str, Any]) -> PlatformFacts:
    """The facts corrected by torch's own account: its devices are those that tensors can use."""
    torch = TorchFacts(
        str(seen["version"]), seen["cuda"], seen["hip"], tuple(seen["architectures"])
    )
    facts = dataclasses.replace(facts, torch=torch)
    gpus = tuple(DeviceFacts(*gpu) for gpu in seen["gpus"])
    if gpus:
        name = PlatformName.ROCM if torch.hip else PlatformName.CUDA
        return dataclasses.replace(facts, platform=name, devices=gpus)
    lost = facts.platform in (PlatformName.CUDA, PlatformName.ROCM)
    if lost or (facts.platform is PlatformName.MPS and not seen["mps"]):
        title = platform(facts.platform).title
        why = f": {seen['why']}" if seen["why"] else ""
        note = f"torch {torch.version} cannot use {title} here{why}"
        return dataclasses.replace(
            facts, platform=PlatformName.CPU, devices=(), notes=(*facts.notes, note)
        )
    return facts
