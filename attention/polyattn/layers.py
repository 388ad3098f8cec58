"""`LocalAttention`: one attention site. A dictionary hit, a count, a kernel.

Only the first call of a shape (or force, mask kind, grid) runs the selector; see
docs/architecture.md "The hot path" for what each line costs.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, cast

import torch
from torch import Tensor
from torch.compiler import is_compiling

from polyattn import capabilities, forcing
from polyattn.call import AttentionCall, Grid, Site
from polyattn.errors import UnsupportedCall
from polyattn.executions import Tally
from polyattn.facts import PlatformFacts
from polyattn.masks import MEMORY
from polyattn.preferences import NO_PREFERENCES, AttentionPreferences, Request
from polyattn.progress import Progress
from polyattn.selector import Selection, select
from polyattn.vocabulary import DType, MaskKind, PlatformName, Role

log = logging.getLogger("polyattn")

# (frames, height, width, text, text_first) in tokens, as a plain tuple: it is hashed at every
# call and travels through compiled graphs as integers. () is "not known".
GridKey = tuple[int, ...]


class GridState:
    """The token grid of the forward pass that is running, shared by a component's sites.

    `pyramid` says that deeper levels halve height and width (U-Nets, VAEs).
    """

    def __init__(self, pyramid: bool = False) -> None:
        self.key: GridKey = ()
        self.pyramid = pyramid

    def grid(self, key: GridKey, query_len: int) -> Grid | None:
        """The grid that a query sequence of this length lies on, or None."""
        if not key:
            return None
        frames, height, width, text, text_first = key
        levels = range(8) if self.pyramid else range(1)
        for level in levels:
            rows, columns = -(-height // 2**level), -(-width // 2**level)
            for count in (frames, 1):
                for words in (text, 0):
                    grid = Grid(count, rows, columns, words, bool(text_first) and words > 0)
                    if grid.fits(query_len):
                        return grid
        return None


@dataclass
class Context:
    """What the sites of one attached pipeline share."""

    facts: PlatformFacts
    preferences: AttentionPreferences = NO_PREFERENCES
    tallies: list[Tally] = field(default_factory=list)
    warned: set[tuple[str, str, str | None]] = field(default_factory=set)
    progress: Progress = field(default_factory=Progress)

    def note(self, call: AttentionCall, selection: Selection) -> None:
        """Warn of a substitution, once per component, request and reason."""
        if not selection.substitution:
            return
        component = call.site.component if call.site else "attention"
        once = (component, str(selection.requested), selection.reason)
        if once not in self.warned:
            self.warned.add(once)
            log.warning(
                "%s: %s was requested, %s runs instead: %s",
                component,
                selection.requested,
                selection.implementation,
                selection.reason,
            )


class LocalAttention:
    """Attention at one site, with every sequence on this device.

    query [batch, query_len, heads, head_dim], key [batch, kv_len, kv_heads, head_dim], value
    [batch, kv_len, kv_heads, value_head_dim] -> [batch, query_len, heads, value_head_dim]. `mask`
    broadcasts to [batch, heads, query_len, kv_len]: boolean (true attends) or additive. `causal`
    aligns the first query with the first key, as torch does. kv_heads divides heads. `grid` is the
    running forward pass's, unless the operator of a compiled graph brings it.

    Raises what `polyattn.selector.select` raises, at the first call of a kind.
    """

    def __init__(
        self,
        context: Context,
        site: Site | None = None,
        grid: GridState | None = None,
    ) -> None:
        from polyattn.compiled import register

        self.context = context
        self.site = site
        self.grid = grid or GridState()
        self._tallies: dict[tuple[Any, ...], Tally] = {}
        self._other_tallies: dict[tuple[Any, ...], Tally] = {}  # of the first steps, or after them
        self._in_first_steps = False
        context.progress.follow(self)
        self.identity: Tensor = register(self)

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        softmax_scale: float | None = None,
        grid: GridKey | None = None,
    ) -> Tensor:
        if grid is None:
            grid = self.grid.key
        if is_compiling():
            return cast(
                Tensor,
                torch.ops.polyattn.attend(
                    query, key, value, mask, self.identity, list(grid), causal, softmax_scale
                ),
            )
        kind = None
        if mask is not None:
            kind = MEMORY.kind(mask)
            if kind is MaskKind.NONE:
                mask = kind = None
        # The key's shape is not part of it: its lengths are the value's, its head_dim the query's.
        lookup = (
            query.shape,
            value.shape,
            query.dtype,
            query.device,
            kind,
            causal,
            softmax_scale,
            grid,
            forcing.IN_CONTEXT.get() or forcing.in_process,
        )
        try:
            tally = self._tallies[lookup]
        except KeyError:
            tally = self._resolve(lookup, query, key, value)
        tally.calls += 1
        return tally.attend(query, key, value, mask, causal, softmax_scale)

    def _resolve(self, lookup: tuple[Any, ...], query: Tensor, key: Tensor, value: Tensor) -> Tally:
        kind, causal, softmax_scale, grid, forced = lookup[4:]
        call = AttentionCall(
            batch=query.shape[0],
            query_len=query.shape[1],
            kv_len=key.shape[1],
            heads=query.shape[2],
            kv_heads=key.shape[2],
            head_dim=query.shape[3],
            dtype=_dtype_name(query.dtype),
            value_head_dim=None if value.shape[3] == query.shape[3] else value.shape[3],
            mask=kind or MaskKind.NONE,
            causal=causal,
            softmax_scale=softmax_scale,
            device=query.device.index or 0,
            site=self.site,
            grid=self.grid.grid(grid, query.shape[1]) or self._misfit(grid),
        )
        if key.shape[2] == 0 or query.shape[2] % key.shape[2]:
            raise UnsupportedCall(
                f"{self.site or 'This call'} has {query.shape[2]} query heads and {key.shape[2]} "
                "key heads; the latter must divide the former."
            )
        facts = facts_of_device(self.context.facts, query.device)
        call, selection = self._select(call, facts, forced)
        self.context.note(call, selection)
        tally = Tally(selection, call, self._attend(selection, call))
        # Two threads may resolve the same lookup at once; both keep the first tally.
        kept = self._tallies.setdefault(lookup, tally)
        if kept is tally:
            self.context.tallies.append(tally)
        return kept

    def first_steps(self, running: bool) -> None:
        """Look up apart what is chosen in the first steps, which an option makes dense."""
        if running != self._in_first_steps:
            self._in_first_steps = running
            self._tallies, self._other_tallies = self._other_tallies, self._tallies

    def _select(
        self, call: AttentionCall, facts: PlatformFacts, forced: Request | None
    ) -> tuple[AttentionCall, Selection]:
        """Select; once more where the choice makes the step that is running a dense one."""
        progress, preferences = self.context.progress, self.context.preferences
        call = dataclasses.replace(call, first_steps=progress.in_first_steps)
        selection = select(call, facts, preferences, forced)
        dense = capabilities.row(selection.implementation).dense_steps
        steps = dense(dict(preferences.options)) if dense and progress.recorder is None else 0
        if steps > progress.dense_steps:
            progress.dense_steps = steps
            call = dataclasses.replace(call, first_steps=progress.in_first_steps)
            selection = select(call, facts, preferences, forced)
        return call, selection

    def _attend(self, selection: Selection, call: AttentionCall) -> Callable[..., Tensor]:
        attend = bound(selection.implementation, call, self.context)
        return adapter(selection.implementation) if attend is None else attend

    def _misfit(self, key: GridKey) -> Grid | None:
        """The grid that does not fit, so that a reason can name it beside the sequence."""
        if not key or self.grid.pyramid or self.site is None or self.site.role is Role.CROSS:
            return None
        frames, height, width, text, text_first = key
        return Grid(frames, height, width, text, bool(text_first))


def bound(
    implementation: str, call: AttentionCall, context: Context
) -> Callable[..., Tensor] | None:
    """The attend function that an implementation makes for one call, if it makes any."""
    reference = capabilities.row(implementation).bind
    if reference is None:
        return None
    made = _load(reference)(call, dict(context.preferences.options), context.progress)
    return cast("Callable[..., Tensor]", made)


def facts_of_device(facts: PlatformFacts, device: torch.device) -> PlatformFacts:
    """The facts that hold for tensors on this device.

    A tensor that was offloaded to the CPU of a GPU machine is computed by the CPU's kernels.
    """
    if device.type == "cpu" and facts.platform is not PlatformName.CPU:
        return dataclasses.replace(facts, platform=PlatformName.CPU, devices=())
    if len(facts.devices) > 1:
        return facts.for_device(device.index or 0)
    return facts


@cache
def adapter(implementation: str) -> Callable[..., Tensor]:
    """The `attend` function of an implementation, imported on first use."""
    reference = capabilities.row(implementation).adapter
    if reference is None:
        raise UnsupportedCall(f"{implementation} has no adapter in this version of polyattn.")
    return cast("Callable[..., Tensor]", _load(reference))


def _load(reference: str) -> Any:
    """What "module:name" means, its module imported on first use."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def _dtype_name(dtype: torch.dtype) -> DType:
    return cast(DType, str(dtype).removeprefix("torch."))
