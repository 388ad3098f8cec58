"""Finding the attention sites of a diffusers model, and those that no stand-in can reach.

A site is a processor, or a module without one, whose code calls `dispatch_attention_fn` or
`scaled_dot_product_attention`. The code itself is read (names in its code objects, followed into
functions of the same module), so no list of classes has to keep up with diffusers.
families.py only adds what the code does not say.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from torch import nn

from polyattn.call import Site
from polyattn.integrations.families import UNKNOWN, Family, family_of
from polyattn.integrations.standins import reaches
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
    seams: tuple[tuple[ModuleType, str], ...]  # where the stand-ins go: modules' names

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
    family = family_of(model)
    for path, module in model.named_modules():
        processor = getattr(module, "processor", None)
        kind: Any
        if callable(processor):
            kind, entry = type(processor), "__call__"
        else:
            kind, entry = type(module), "forward"
        names = called_names(kind, entry)
        if names & CALLS:
            seams = _seams(kind, entry)
            if seams is None:
                unrouted.append(
                    Unrouted(component, path, f"{kind.__name__} calls torch's attention directly")
                )
                continue
            role = role_of(path, module, family)
            site = Site(component, path, len(found), role, _layer(role, found))
            found.append(FoundSite(site, module, entry, seams))
        elif names & OTHER_CALLS:
            how = ", ".join(sorted(names & OTHER_CALLS))
            unrouted.append(Unrouted(component, path, f"{kind.__name__} attends by {how}"))
    return found, unrouted


def _layer(role: Role, before: list[FoundSite]) -> int | None:
    """The layer number that per-layer settings of sparse attention mean: cross sites have none."""
    if role is Role.CROSS:
        return None
    return sum(place.site.role is not Role.CROSS for place in before)


def role_of(path: str, module: nn.Module, family: Family = UNKNOWN) -> Role:
    """The role of a site: by its family's row, else by what its module declares of itself."""
    known = family.role(path)
    if known is not None:
        return known
    if getattr(module, "is_cross_attention", False):
        return Role.CROSS
    declared: Any = getattr(module, "added_kv_proj_dim", None)
    # Blocks after the two streams are joined hold text and image in one sequence (Flux).
    joined = path.startswith(("single_transformer_blocks.", "single_blocks."))
    return Role.JOINT if declared is not None or joined else Role.SELF


@cache
def called_names(kind: type, entry: str) -> frozenset[str]:
    """The attention functions that a method can reach, through functions of its own module."""
    names = {name for function in _reached(kind, entry) for name in _names(function.__code__)}
    return frozenset(names & (CALLS | OTHER_CALLS))


@cache
def _reached(kind: type, entry: str) -> tuple[FunctionType, ...]:
    """The method and the functions of its own module that it can call, directly or through them."""
    found: dict[FunctionType, None] = {}
    method = _unwrap(getattr(kind, entry, None))
    pending = [] if method is None else [(method, _FOLLOW_DEPTH)]
    while pending:
        function, depth = pending.pop()
        if function in found:
            continue
        found[function] = None
        if depth == 0:
            continue
        for name in set(_names(function.__code__)) - CALLS:
            other = _unwrap(function.__globals__.get(name) or getattr(kind, name, None))
            if other is not None and other.__module__ == function.__module__:
                pending.append((other, depth - 1))
    return tuple(found)


def _names(code: CodeType) -> Iterator[str]:
    for part in _parts(code):
        yield from part.co_names


def _parts(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant)


def _unwrap(method: object) -> FunctionType | None:
    while hasattr(method, "__wrapped__"):
        method = method.__wrapped__
    return method if isinstance(method, FunctionType) else None


def _seams(kind: type, entry: str) -> tuple[tuple[ModuleType, str], ...] | None:
    """The names by which the attention calls start, if stand-ins can serve every one."""
    seams: dict[tuple[ModuleType, str], None] = {}
    for function in _reached(kind, entry):
        module = sys.modules.get(function.__module__)
        for chain in _attention_chains(function.__code__):
            if module is None or not reaches(module, chain):
                return None
            seams[module, chain[0]] = None
    return tuple(seams) or None


@cache
def _attention_chains(code: CodeType) -> frozenset[tuple[str, ...]]:
    """How the code names attention functions: ("F", "scaled_dot_product_attention") and the like.

    The chain starts at a global name. One that starts elsewhere, as at an argument, is ().
    """
    chains: set[tuple[str, ...]] = set()
    for part in _parts(code):
        chain: tuple[str, ...] = ()
        for instruction in dis.get_instructions(part):
            name = instruction.argval
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                chain = (name,)
            elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                chain = (*chain, name) if chain else ()
            elif instruction.opname in ("CACHE", "PUSH_NULL", "EXTENDED_ARG"):
                continue
            else:
                chain = ()
                continue
            if name in CALLS:
                chains.add(chain)
    return frozenset(chains)
