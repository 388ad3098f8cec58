"""`Implementation`: one kernel that serves a backend, and `Needs`: what it takes to compute right.

The rows themselves stand in dense_rows.py and capabilities.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from polyattn.call import AttentionCall
from polyattn.facts import PackageFacts, PlatformFacts
from polyattn.rules import Rule
from polyattn.vocabulary import DType, Fidelity, MaskKind, PackageState, PlatformName, Role

HALF: Final[tuple[DType, ...]] = ("float16", "bfloat16")
ALL_MASKS: Final = tuple(MaskKind)
UNMASKED: Final = (MaskKind.NONE,)
KEYS_ONLY: Final = (MaskKind.NONE, MaskKind.KEY_PADDING)


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
    InvalidOptions for values that it does not take, before a model loads. `dense_steps` is how
    many first denoising steps the options make dense, `dense_by_option` why they make a call
    dense: an exact implementation serves such a call and is counted for it. `evidence` says what
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
    dense_steps: Callable[[Mapping[str, object]], int] | None = None
    dense_by_option: Callable[[AttentionCall, Mapping[str, object]], str | None] | None = None
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
