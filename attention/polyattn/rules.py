"""Rules of rows: what a kernel cannot do and the plain fields of `Needs` cannot say.

Each takes the call (None when only the machine is judged) and the facts, and returns the reason as
a sentence part, or None. The docstring's first line is what the support matrix prints.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from polyattn.call import AttentionCall
from polyattn.facts import PlatformFacts
from polyattn.vocabulary import MaskKind, PackageState, PlatformName

Rule = Callable[[AttentionCall | None, PlatformFacts], str | None]

MOST_SCORES: Final = 2**30  # of one SDPA call on Metal


def causal_lengths(call: AttentionCall | None, _: PlatformFacts) -> str | None:
    """Causal only with as many keys as queries, unmasked."""
    # FlashAttention aligns the last query with the last key, torch (and polyattn) the first with
    # the first: they agree on a square only. flash-attn 2.1 changelog, facts/diffusers.md 7.
    if call is None or not call.causal:
        return None
    if call.query_len != call.kv_len:
        return (
            f"aligns causal attention at the last key, so it needs as many keys as queries, not "
            f"{call.kv_len} for {call.query_len}"
        )
    if call.mask is not MaskKind.NONE:
        return "leaves masked keys out, which moves its causal alignment"
    return None


def whole_key_blocks(call: AttentionCall | None, _: PlatformFacts) -> str | None:
    """Not causal only with a multiple of 64 keys."""
    # SageAttention 1.0.6 lets the padding of the last block of keys into the softmax: a relative
    # error of 0.37 at 65 keys (facts/packaging.md section 2, hazard 6; 2.x masks it).
    if call is None or call.causal or call.kv_len % 64 == 0:
        return None
    return f"miscomputes {call.kv_len} keys: without causal it needs a multiple of 64"


def same_value_dim(call: AttentionCall | None, _: PlatformFacts) -> str | None:
    """Values of the keys' head_dim."""
    if call is None or call.value_head_dim in (None, call.head_dim):
        return None
    return f"needs values of the keys' head_dim, {call.head_dim}, not {call.value_head_dim}"


def version_from(package: str, first: int, before: int | None = None) -> Rule:
    """A rule: the package's major version is at least `first`, and below `before`."""

    def rule(_: AttentionCall | None, facts: PlatformFacts) -> str | None:
        found = facts.package(package)
        if found.state is PackageState.ABSENT or found.version is None:
            return None  # that it is missing, or of an unknown version, is said elsewhere
        major = _numbers(found.version)[0]
        if major >= first and (before is None or major < before):
            return None
        wanted = f"{first}.x" if before == first + 1 else f"{first}.0 or later"
        return f"needs {package} {wanted}; {found.version} is installed"

    upper = "" if before is None else f", before {before}"
    rule.__doc__ = f"{package} from {first}{upper}"
    return rule


def cuda_from(*minimums: tuple[str, tuple[int, int]]) -> Rule:
    """A rule: torch's CUDA is at least (major, minor) on devices whose architecture starts so."""

    def rule(_: AttentionCall | None, facts: PlatformFacts) -> str | None:
        if facts.torch is None or facts.torch.cuda is None:
            return None
        built = _numbers(facts.torch.cuda)
        for architecture in facts.architectures:
            for prefix, needed in minimums:
                if architecture.startswith(prefix) and built < needed:
                    wanted = ".".join(map(str, needed))
                    return (
                        f"needs CUDA {wanted} on {architecture}; "
                        f"torch is built for {facts.torch.cuda}"
                    )
        return None

    each = ", ".join(f"{'.'.join(map(str, v))} on {p}" for p, v in minimums)
    rule.__doc__ = f"CUDA from {each}"
    return rule


def scores_that_metal_addresses(call: AttentionCall | None, facts: PlatformFacts) -> str | None:
    """On MPS less than 2^30 scores."""
    # Metal's SDPA holds them all, is silently wrong from about 2^31 elements and fails beyond 2^32
    # bytes: https://github.com/pytorch/pytorch/issues/149261, facts/sparse-attention.md 6.
    if call is None or facts.platform is not PlatformName.MPS or scores(call) < MOST_SCORES:
        return None
    return f"would hold {scores(call)} scores at once; Metal computes less than {MOST_SCORES} right"


def scores(call: AttentionCall) -> int:
    """How many numbers the query-key product of a call has."""
    return call.batch * call.heads * call.query_len * call.kv_len


def not_missing(package: str) -> Rule:
    """A rule: the package, which another one silently needs, is not known to be missing."""

    def rule(_: AttentionCall | None, facts: PlatformFacts) -> str | None:
        for found in facts.packages:
            if found.name != package:
                continue
            if found.state is PackageState.ABSENT:
                return f"needs the package {package}, which is not installed"
            if found.state in (PackageState.BROKEN, PackageState.FOREIGN):
                detail = found.detail or "no detail"
                return f"needs the package {package}, which is {found.state}: {detail}"
        return None

    rule.__doc__ = f"the package {package}"
    return rule


def machine_is(machine: str, package: str) -> Rule:
    """A rule: the processor is of this kind, since the package's wheels for others lack kernels."""

    def rule(_: AttentionCall | None, facts: PlatformFacts) -> str | None:
        if facts.machine == machine:
            return None
        return f"needs {machine}: {package} has no such kernels for {facts.machine}"

    rule.__doc__ = f"{machine} processors"
    return rule


def holds_kernels(package: str) -> Rule:
    """A rule: where the package's binaries were read, they hold kernels for the device."""

    def rule(_: AttentionCall | None, facts: PlatformFacts) -> str | None:
        held = facts.package(package).architectures
        if not held:
            return None
        lacking = [a for a in facts.architectures if not any(runs_on(h, a) for h in held)]
        if not lacking:
            return None
        return f"has kernels for {', '.join(held)} in the installed {package}; found {lacking[0]}"

    rule.__doc__ = "kernels for the device in the installed binaries"
    return rule


def runs_on(kernel: str, device: str) -> bool:
    """Whether a kernel built for one architecture runs on another, by NVIDIA's rule for cubins.

    Within a major version a cubin runs on its minor version and later ones; `sm_90a` and `sm_100f`
    are bound to their own (the latter to its family). AMD's run on their own only.
    https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#gpu-feature-list
    """
    if not kernel.startswith("sm_") or not device.startswith("sm_"):
        return kernel.partition(":")[0] == device
    if kernel.endswith("a"):
        return kernel[:-1] == device
    digits, wanted = kernel[3:].rstrip("f"), device[3:]
    return digits[:-1] == wanted[:-1] and int(digits[-1]) <= int(wanted[-1])


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: 12.8, 2.2.0+cu130torch2.9 or 4.0.0b36."""
    match = re.match(r"(\d+)(?:\.(\d+))?", version)
    return tuple(int(n or 0) for n in match.groups()) if match else (0, 0)
