"""Finding the attention sites of a diffusers model, and those that no stand-in can reach.

A site is a processor, or a module without one, whose code calls `dispatch_attention_fn` or
`scaled_dot_product_attention`. The code itself is read (names in its code objects, followed into
functions of the same module), so no list of classes has to keep up with diffusers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from torch import nn

from polyattn.call import Site
from polyattn.integrations.standins import has_seam
from polyattn.vocabulary import Role

CALLS: Final = frozenset({"dispatch_attention_fn", "scaled_dot_product_attention"})
# Ways to attend that no stand-in serves.
OTHER_CALLS: Final = frozenset(
    {"get_attention_scores", "flex_attention", "memory_efficient_attention", "flash_attn_func"}
)
_FOLLOW_DEPTH: Final = 3


@dataclass(frozen=True)
class FoundSite:
    """A site and the object whose method `entry` reaches attention."""

    site: Site
    owner: nn.Module  # the module at site.path
    entry: str  # "__call__" of owner.processor, or "forward" of owner itself
    module: ModuleType  # where the stand-ins go

    @property
    def target(self) -> object:
        """The object that announces the site."""
        return self.owner.processor if self.entry == "__call__" else self.owner


@dataclass(frozen=True)
class Unrouted:
    """A place whose attention cannot be routed, and why."""

    component: str
    path: str
    reason: str

    def __str__(self) -> str:
        where = f"{self.component}.{self.path}" if self.path else self.component
        return f"{where}: {self.reason}"


def find_sites(component: str, model: nn.Module) -> tuple[list[FoundSite], list[Unrouted]]:
    """Every attention site of a diffusers model, in module order."""
    found: list[FoundSite] = []
    unrouted: list[Unrouted] = []
    for path, module in model.named_modules():
        processor = getattr(module, "processor", None)
        kind: Any
        if callable(processor):
            kind, entry = type(processor), "__call__"
        else:
            kind, entry = type(module), "forward"
        names = called_names(kind, entry)
        if names & CALLS:
            home = _seam(kind, entry)
            if home is None:
                unrouted.append(
                    Unrouted(component, path, f"{kind.__name__} calls torch's attention directly")
                )
                continue
            site = Site(component, path, len(found), role_of(path, module))
            found.append(FoundSite(site, module, entry, home))
        elif names & OTHER_CALLS:
            how = ", ".join(sorted(names & OTHER_CALLS))
            unrouted.append(Unrouted(component, path, f"{kind.__name__} attends by {how}"))
    return found, unrouted


def role_of(path: str, module: nn.Module) -> Role:
    """The role of a diffusers attention module, by what diffusers itself declares of it."""
    if getattr(module, "is_cross_attention", False):
        return Role.CROSS
    declared: Any = getattr(module, "added_kv_proj_dim", None)
    # Blocks after the two streams are joined hold text and image in one sequence (Flux).
    joined = path.startswith(("single_transformer_blocks.", "single_blocks."))
    return Role.JOINT if declared is not None or joined else Role.SELF


@cache
def called_names(kind: type, entry: str) -> frozenset[str]:
    """The attention functions that a method can reach, through functions of its own module."""
    method = getattr(kind, entry, None)
    function = _unwrap(method)
    if function is None:
        return frozenset()
    reached = set(_reach(function, kind, _FOLLOW_DEPTH))
    return frozenset(reached & (CALLS | OTHER_CALLS))


def _reach(function: FunctionType, kind: object, depth: int) -> Iterator[str]:
    names = set(_names(function.__code__))
    yield from names
    if depth == 0:
        return
    for name in names:
        other = function.__globals__.get(name) or getattr(kind, name, None)
        inner = _unwrap(other)
        if inner is None or inner is function or name in CALLS:
            continue
        if inner.__module__ == function.__module__:
            yield from _reach(inner, kind, depth - 1)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _unwrap(method: object) -> FunctionType | None:
    while hasattr(method, "__wrapped__"):
        method = method.__wrapped__
    return method if isinstance(method, FunctionType) else None


def _seam(kind: type, entry: str) -> ModuleType | None:
    """The module whose names the method's code reads, if a stand-in can serve it."""
    function = _unwrap(getattr(kind, entry))
    if function is None:
        return None
    module = sys.modules.get(function.__module__)
    return module if module is not None and has_seam(module) else None
