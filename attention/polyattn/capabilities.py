"""The rows: one `Implementation` per kernel that serves a backend, each with its `Needs`.

Everything that lists, explains, tests or documents backends iterates `rows()`. What a kernel
cannot do is a need here, never an `if` in its adapter. Limits are cited beside each row; what no
run of ours has confirmed on hardware carries the evidence it rests on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Final

from polyattn.call import AttentionCall
from polyattn.errors import UnknownName
from polyattn.facts import PackageFacts, PlatformFacts
from polyattn.sparse.options import (
    SlidingTileOptions,
    VideoSparseOptions,
    VMoBAOptions,
    check_sliding_tile,
    check_video_sparse,
    check_vmoba,
    names,
)
from polyattn.vocabulary import (
    ENTRY_POINT_GROUP,
    Backend,
    DType,
    Fidelity,
    MaskKind,
    PackageState,
    PlatformName,
    Role,
)

log = logging.getLogger("polyattn")

Rule = Callable[[AttentionCall | None, PlatformFacts], str | None]

HALF: Final[tuple[DType, ...]] = ("float16", "bfloat16")
ALL_MASKS: Final = tuple(MaskKind)


@dataclass(frozen=True)
class Needs:
    """What must hold for a kernel to compute a call right; an empty tuple means "any".

    `rules` hold what the fields cannot say. A rule gets the call (None when only the machine is
    judged) and the facts, and returns the reason as a sentence, or None.
    """

    platforms: tuple[PlatformName, ...] = tuple(PlatformName)
    package: str | None = None
    architectures: tuple[str, ...] = ()  # an allow-list: a newer device is not assumed to work
    dtypes: tuple[DType, ...] = ()
    head_dims: tuple[int, ...] = ()
    max_head_dim: int | None = None
    head_dim_multiple: int = 1
    masks: tuple[MaskKind, ...] = ALL_MASKS
    roles: tuple[Role, ...] = tuple(Role)
    causal: bool = True
    grouped_heads: bool = True  # kv_heads < heads
    custom_scale: bool = True
    lse: bool = True
    grid: bool = False  # needs a token grid that fits the sequence
    rules: tuple[Rule, ...] = ()

    def unmet_by_machine(self, facts: PlatformFacts) -> str | None:
        """Why this machine cannot run the kernel at all, or None."""
        if facts.platform not in self.platforms:
            needed = " or ".join(str(platform) for platform in self.platforms)
            return f"needs the platform {needed}; this machine is {facts.platform}"
        for package in facts.packages:
            # Every kernel stands on torch. Facts that never mention it are taken to have it.
            if package.name == "torch" and (missing := _package_reason(package)):
                return missing
        if self.package is not None and (missing := _package_reason(facts.package(self.package))):
            return missing
        if self.architectures:
            unsuited = [a for a in facts.architectures if a not in self.architectures]
            if unsuited or not facts.architectures:
                found = ", ".join(unsuited) or "no device"
                return f"has kernels for {', '.join(self.architectures)}; found {found}"
        return self._first_broken_rule(None, facts)

    def unmet_by_call(self, call: AttentionCall) -> str | None:
        """Why the kernel cannot compute this call on any machine, or None."""
        value_dim = call.head_dim if call.value_head_dim is None else call.value_head_dim
        widest = max(call.head_dim, value_dim)
        checks: tuple[tuple[bool, str], ...] = (
            (
                bool(self.dtypes) and call.dtype not in self.dtypes,
                f"takes {' or '.join(self.dtypes)}, not {call.dtype}",
            ),
            (
                bool(self.head_dims) and call.head_dim not in self.head_dims,
                f"takes head_dim {', '.join(map(str, self.head_dims))}, not {call.head_dim}",
            ),
            (
                self.max_head_dim is not None and widest > self.max_head_dim,
                f"takes head_dim up to {self.max_head_dim}, not {widest}",
            ),
            (
                call.head_dim % self.head_dim_multiple != 0,
                f"takes multiples of {self.head_dim_multiple} as head_dim, not {call.head_dim}",
            ),
            (call.mask not in self.masks, f"takes no {call.mask} mask"),
            (call.role not in self.roles, f"does not serve {call.role} attention"),
            (call.causal and not self.causal, "has no causal form"),
            (
                call.kv_heads != call.heads and not self.grouped_heads,
                f"needs as many key heads as query heads, not {call.kv_heads} for {call.heads}",
            ),
            (
                call.softmax_scale is not None and not self.custom_scale,
                "takes no softmax_scale of the caller's",
            ),
            (call.lse and not self.lse, "returns no log-sum-exp"),
        )
        for broken, reason in checks:
            if broken:
                return reason
        return self._grid_reason(call)

    def unmet(self, call: AttentionCall | None, facts: PlatformFacts) -> str | None:
        """The first reason why the kernel cannot serve, machine before call, or None."""
        reason = self.unmet_by_machine(facts)
        if reason is not None or call is None:
            return reason
        return self.unmet_by_call(call) or self._first_broken_rule(call, facts)

    def _grid_reason(self, call: AttentionCall) -> str | None:
        if not self.grid:
            return None
        if call.grid is None:
            return "needs the token grid, which is not known at this site"
        if not call.grid.fits(call.query_len):
            return f"needs a token grid that fits: {call.grid} is not {call.query_len} tokens"
        return None

    def _first_broken_rule(self, call: AttentionCall | None, facts: PlatformFacts) -> str | None:
        return next((reason for rule in self.rules if (reason := rule(call, facts))), None)


def _package_reason(package: PackageFacts) -> str | None:
    if package.state is PackageState.ABSENT:
        return f"needs the package {package.name}, which is not installed"
    if package.state in (PackageState.BROKEN, PackageState.FOREIGN):
        detail = package.detail or "no detail"
        return f"needs the package {package.name}, which is installed but {package.state}: {detail}"
    return None


@dataclass(frozen=True)
class Implementation:
    """One kernel that serves a backend.

    `adapter` is "module:function", imported on first use. `bind` is one too, for a kernel that
    depends on more than its tensors: `bind(call, options, progress)` makes the attend function,
    once per lookup. Neither means that this version has no adapter, which is a reason like any
    other. `options` are the names that it reads from the attention config; `check_options` raises
    InvalidOptions for values that it does not take, before a model loads. `evidence` says what
    the row's claims rest on.
    """

    name: str
    backend: str
    title: str
    needs: Needs
    adapter: str | None = None
    bind: str | None = None
    fidelity: Fidelity = Fidelity.EXACT
    options: tuple[str, ...] = ()
    check_options: Callable[[Mapping[str, object]], None] | None = None
    evidence: str = "not run on hardware"

    def unmet_by_machine(self, facts: PlatformFacts) -> str | None:
        """`Needs.unmet_by_machine`, then a missing adapter, then a failed live probe."""
        return (
            self.needs.unmet_by_machine(facts) or self._adapter_reason or self._live_reason(facts)
        )

    def unmet(self, call: AttentionCall | None, facts: PlatformFacts) -> str | None:
        """The reason why this row cannot serve the call here, as a sentence part, or None."""
        return self.unmet_by_machine(facts) or self.needs.unmet(call, facts)

    @property
    def _adapter_reason(self) -> str | None:
        return None if self.adapter or self.bind else "has no adapter in this version of polyattn"

    def _live_reason(self, facts: PlatformFacts) -> str | None:
        devices = [device.index for device in facts.devices]
        for result in facts.live:
            if result.failure and result.implementation == self.name and result.device in devices:
                return f"failed when it was tried on device {result.device}: {result.failure}"
        return None


_CUDA: Final = (PlatformName.CUDA,)
_GPU: Final = (PlatformName.CUDA, PlatformName.ROCM)
_AMPERE_AND_ADA: Final = ("sm_80", "sm_86", "sm_87", "sm_89")
_DATACENTER_BLACKWELL: Final = ("sm_100", "sm_103")
_CONSUMER_BLACKWELL: Final = ("sm_120", "sm_121")
_CDNA: Final = ("gfx90a", "gfx942", "gfx950")
_UNMASKED: Final = (MaskKind.NONE,)
_TO_COME: Final = "no adapter in this version"

# Sources: facts/packaging.md section 1 (architectures read from the wheels), section 2 hazards;
# facts/sglang-diffusion.md section 1.6; facts/sparse-attention.md section 1.


def _one_head_dim(call: AttentionCall | None, _: PlatformFacts) -> str | None:
    """values as wide as keys"""
    if call is None or call.value_head_dim in (None, call.head_dim):
        return None
    return f"needs values of the keys' head_dim, {call.head_dim}, not {call.value_head_dim}"


_SPARSE_NEEDS: Final = Needs(
    masks=_UNMASKED,
    roles=(Role.SELF, Role.JOINT),
    causal=False,
    grouped_heads=False,
    lse=False,
    grid=True,
    rules=(_one_head_dim,),
)

BUILTIN: Final[tuple[Implementation, ...]] = (
    Implementation(
        name="fa4",
        backend=Backend.FA,
        title="FlashAttention 4 (flash_attn.cute)",
        evidence=_TO_COME,
        needs=Needs(
            platforms=_CUDA,
            package="flash-attn-4",
            architectures=(
                *_AMPERE_AND_ADA,
                "sm_90",
                *_DATACENTER_BLACKWELL,
                *_CONSUMER_BLACKWELL,
            ),
            dtypes=HALF,
            max_head_dim=128,
            head_dim_multiple=8,
            masks=_UNMASKED,
        ),
    ),
    Implementation(
        name="fa3",
        backend=Backend.FA,
        title="FlashAttention 3 (sgl_kernel)",
        evidence=_TO_COME,
        needs=Needs(
            platforms=_CUDA,
            package="sglang-kernel",
            architectures=(*_AMPERE_AND_ADA, "sm_90"),
            dtypes=HALF,
            max_head_dim=256,
            head_dim_multiple=8,
            masks=_UNMASKED,
        ),
    ),
    Implementation(
        name="fa2",
        backend=Backend.FA,
        title="FlashAttention 2 (flash_attn)",
        evidence=_TO_COME,
        needs=Needs(
            platforms=_GPU,
            package="flash-attn",
            architectures=(
                *_AMPERE_AND_ADA,
                "sm_90",
                "sm_100",
                *_CONSUMER_BLACKWELL,
                *_CDNA,
            ),
            dtypes=HALF,
            max_head_dim=256,
            head_dim_multiple=8,
            masks=_UNMASKED,
        ),
    ),
    Implementation(
        name="sdpa",
        backend=Backend.TORCH_SDPA,
        title="torch.nn.functional.scaled_dot_product_attention, torch's own kernel choice",
        adapter="polyattn.backends.torch_sdpa:attend",
        evidence="run on a CPU; not run on other hardware",
        needs=Needs(lse=False),
    ),
    Implementation(
        name="sage1",
        backend=Backend.SAGE_ATTN,
        title="SageAttention 1.0.6 (Triton, INT8)",
        fidelity=Fidelity.LOSSY,
        evidence=_TO_COME,
        needs=Needs(
            platforms=_CUDA,
            package="sageattention",
            architectures=(
                *_AMPERE_AND_ADA,
                "sm_90",
                *_DATACENTER_BLACKWELL,
                *_CONSUMER_BLACKWELL,
            ),
            dtypes=HALF,
            head_dims=(64, 96, 128),
            masks=_UNMASKED,
            lse=False,
        ),
    ),
    Implementation(
        name="sage3",
        backend=Backend.SAGE_ATTN_3,
        title="SageAttention 3 (FP4)",
        fidelity=Fidelity.LOSSY,
        evidence=_TO_COME,
        needs=Needs(
            platforms=_CUDA,
            package="sageattn3",
            architectures=(*_DATACENTER_BLACKWELL, *_CONSUMER_BLACKWELL),
            dtypes=HALF,
            head_dims=(64, 128),
            masks=_UNMASKED,
            grouped_heads=False,
            custom_scale=False,
            lse=False,
        ),
    ),
    Implementation(
        name="aiter",
        backend=Backend.AITER,
        title="AMD aiter flash attention",
        evidence=_TO_COME,
        needs=Needs(
            platforms=(PlatformName.ROCM,),
            package="amd-aiter",
            architectures=("gfx942", "gfx950"),
            dtypes=HALF,
            max_head_dim=256,
            head_dim_multiple=8,
            masks=_UNMASKED,
            grouped_heads=False,
        ),
    ),
    Implementation(
        name="sta",
        backend=Backend.SLIDING_TILE_ATTN,
        title="Sliding tile attention, in torch operations",
        bind="polyattn.backends.sliding_tile:bind",
        fidelity=Fidelity.SPARSE,
        evidence="run on a CPU; not run on other hardware",
        options=names(SlidingTileOptions),
        check_options=check_sliding_tile,
        needs=_SPARSE_NEEDS,
    ),
    Implementation(
        name="vsa",
        backend=Backend.VIDEO_SPARSE_ATTN,
        title="Video sparse attention, in torch operations",
        bind="polyattn.backends.video_sparse:bind",
        fidelity=Fidelity.SPARSE,
        evidence="run on a CPU; not run on other hardware",
        options=names(VideoSparseOptions),
        check_options=check_video_sparse,
        needs=_SPARSE_NEEDS,
    ),
    Implementation(
        name="vmoba",
        backend=Backend.VMOBA_ATTN,
        title="VMoBA: mixture of block attention for video, in torch operations",
        bind="polyattn.backends.vmoba:bind",
        fidelity=Fidelity.SPARSE,
        evidence="run on a CPU; not run on other hardware",
        options=names(VMoBAOptions),
        check_options=check_vmoba,
        needs=_SPARSE_NEEDS,
    ),
)


@cache
def rows() -> tuple[Implementation, ...]:
    """Our rows, then those that other distributions register.

    An entry point of the group `polyattn.implementations` names an `Implementation` or a tuple
    of them; it must not import torch. One that does not load is left out with a warning: a broken
    package must not stop those who do not want it. A name that is already taken raises ValueError.
    """
    found = list(BUILTIN)
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
        try:
            loaded = entry.load()
        except Exception as error:  # whatever the other distribution raises at import
            log.warning(
                "%s registers attention implementations as %s, which do not load: %s: %s",
                entry.dist.name if entry.dist else "a package",
                entry.value,
                type(error).__name__,
                error,
            )
            continue
        found += [loaded] if isinstance(loaded, Implementation) else list(loaded)
    names = [row.name for row in found]
    taken = sorted({name for name in names if names.count(name) > 1})
    if taken:
        raise ValueError(f"Several implementations are called {', '.join(taken)}.")
    return tuple(found)


def backend_names() -> tuple[str, ...]:
    """Every backend name that a row serves, in row order."""
    return tuple(dict.fromkeys(str(row.backend) for row in rows()))


def rows_of(backend: str) -> tuple[Implementation, ...]:
    """The implementations of a backend, in row order; raises UnknownName."""
    found = tuple(row for row in rows() if row.backend == backend)
    if not found:
        raise UnknownName("attention backend", backend, backend_names())
    return found


def row(name: str) -> Implementation:
    """The implementation of that name; raises UnknownName."""
    for candidate in rows():
        if candidate.name == name:
            return candidate
    raise UnknownName("attention implementation", name, (r.name for r in rows()))
