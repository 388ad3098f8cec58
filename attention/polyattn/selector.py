"""Which implementation serves a call, and why no other one: one pure function."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass

from polyattn import capabilities
from polyattn.call import AttentionCall
from polyattn.capabilities import Implementation
from polyattn.errors import (
    BackendUnavailable,
    InvalidOptions,
    SubstitutionRefused,
    UnknownName,
    UnsupportedCall,
)
from polyattn.facts import PlatformFacts
from polyattn.platforms import platform
from polyattn.preferences import NO_PREFERENCES, AttentionPreferences, Request, is_denoiser
from polyattn.vocabulary import Backend, Fidelity, Source


@dataclass(frozen=True)
class Rejection:
    """An implementation that was not taken, and the reason as a sentence part."""

    implementation: str
    reason: str


@dataclass(frozen=True)
class Selection:
    """The decision for one call. Names only: no callables, so that it can be stored anywhere."""

    backend: str
    implementation: str
    source: Source
    requested: Request | None = None
    rejections: tuple[Rejection, ...] = ()

    @property
    def substitution(self) -> bool:
        """Whether what runs differs from what was requested."""
        if self.requested is None:
            return False
        if self.requested.implementation is not None:
            return self.requested.implementation != self.implementation
        return self.requested.backend != self.backend

    @property
    def reason(self) -> str | None:
        """Why the request was not served, or None where it was."""
        if self.requested is None or not self.substitution:
            return None
        wanted = {row.name for row in _candidates(self.requested)}
        return "; ".join(
            f"{r.implementation} {r.reason}" for r in self.rejections if r.implementation in wanted
        )


def select(
    call: AttentionCall,
    facts: PlatformFacts,
    preferences: AttentionPreferences = NO_PREFERENCES,
    forced: Request | None = None,
) -> Selection:
    """Choose the implementation for one call by the rules of docs/selection.md.

    Raises BackendUnavailable (an explicit request that this machine cannot serve and that must
    not be substituted), SubstitutionRefused (`on_substitution="error"`), UnsupportedCall.
    """
    requested, source = requested_for(call, preferences, forced)
    if requested is None:
        return _automatic(call, facts, Source.AUTO, None)
    dense_by_option: dict[str, str] = {}
    for row in _preferred(_candidates(requested), facts):
        if row.unmet(call, facts) is not None:
            continue
        dense = row.dense_by_option and row.dense_by_option(call, dict(preferences.options))
        if dense:
            dense_by_option[row.name] = dense
            continue
        return Selection(
            str(row.backend),
            row.name,
            source,
            requested,
            _rejections(row, call, facts, f"{row.name} serves the request {requested}"),
        )
    if dense_by_option:
        # The user's own options say so: recorded like a substitution, never refused as one.
        selection = _automatic(call, facts, source, requested)
        rejections = (
            Rejection(r.implementation, dense_by_option.get(r.implementation, r.reason))
            for r in selection.rejections
        )
        return dataclasses.replace(selection, rejections=tuple(rejections))
    if not _may_substitute(requested, facts) and not _machine_can(requested, facts):
        raise BackendUnavailable(_unavailable(requested, facts))
    selection = _sibling_or_automatic(call, facts, source, requested)
    if selection.substitution and preferences.on_substitution == "error":
        raise SubstitutionRefused(
            f"{requested} was requested at {call.site or 'this call'} but "
            f"{selection.implementation} would run: {selection.reason}. "
            "Request what can run there, or use --on-substitution warn."
        )
    return selection


def requested_for(
    call: AttentionCall, preferences: AttentionPreferences, forced: Request | None
) -> tuple[Request | None, Source]:
    """The request that concerns this call and the rule it came by: the strongest wins."""
    if forced is not None:
        return forced, Source.FORCE
    site = call.site
    if site is None:
        return preferences.backend, Source.FLAG if preferences.backend else Source.AUTO
    for component, role, request in preferences.roles:
        if component == site.component and role is site.role:
            return request, Source.ROLE
    for component, request in preferences.components:
        if component == site.component:
            return request, Source.COMPONENT
    if preferences.backend is not None and is_denoiser(site.component):
        return preferences.backend, Source.FLAG
    return None, Source.AUTO


def check_preferences(
    preferences: AttentionPreferences,
    facts: PlatformFacts,
    components: Collection[str] | None = None,
) -> None:
    """Refuse, before any model loads, what this machine can never serve.

    `components` are the model's component names, where they are known. Raises UnknownName,
    InvalidOptions, BackendUnavailable or SubstitutionRefused.
    """
    if components is not None:
        for name in preferences.named_components:
            if name not in components:
                raise UnknownName("component", name, components)
    for words, request in preferences.requests:
        if _machine_can(request, facts):
            continue
        if not _may_substitute(request, facts):
            raise BackendUnavailable(_unavailable(request, facts))
        if preferences.on_substitution == "error":
            raise SubstitutionRefused(
                f"{words} cannot be served here and --on-substitution is error: "
                f"{_reasons(request, facts)}. Request what can run, or use --on-substitution warn."
            )
    _check_options(preferences)


def usable(facts: PlatformFacts) -> dict[str, str | None]:
    """Every implementation: None where this machine can run it, else the reason."""
    return {row.name: row.unmet_by_machine(facts) for row in capabilities.rows()}


def _check_options(preferences: AttentionPreferences) -> None:
    for _, request in preferences.requests:
        for row in _candidates(request):
            if row.check_options is not None:
                row.check_options(dict(preferences.options))
    # Options from the environment may be meant for another run; those given by flag may not.
    if preferences.options_source != "--attention-backend-config":
        return
    requests = [request for _, request in preferences.requests]
    if not requests:
        raise InvalidOptions(
            "--attention-backend-config is given but no backend is requested; "
            "name one by --attention-backend."
        )
    known = {name for request in requests for row in _candidates(request) for name in row.options}
    for name, _ in preferences.options:
        if name not in known:
            asked = ", ".join(dict.fromkeys(str(request) for request in requests))
            raise UnknownName(f"option of {asked}", name, known)


def _candidates(request: Request) -> tuple[Implementation, ...]:
    rows = capabilities.rows_of(request.backend)
    if request.implementation is None:
        return rows
    return tuple(row for row in rows if row.name == request.implementation)


def _preferred(
    rows: tuple[Implementation, ...], facts: PlatformFacts
) -> tuple[Implementation, ...]:
    """The rows in the order in which automatic choice would try them here, the others after."""
    order = platform(facts.platform).order(facts).implementations
    return tuple(
        sorted(rows, key=lambda row: order.index(row.name) if row.name in order else len(order))
    )


def _machine_can(request: Request, facts: PlatformFacts) -> bool:
    return any(row.unmet_by_machine(facts) is None for row in _candidates(request))


def _may_substitute(request: Request, facts: PlatformFacts) -> bool:
    """`fa` is documented as used when supported; some platforms serve any dense request alike."""
    if request.backend in (Backend.FA, Backend.TORCH_SDPA):
        return True
    dense = all(row.fidelity is not Fidelity.SPARSE for row in _candidates(request))
    return dense and platform(facts.platform).dense_backend is not None


def _sibling_or_automatic(
    call: AttentionCall, facts: PlatformFacts, source: Source, requested: Request
) -> Selection:
    """Another implementation of the same exact backend, else the automatic exact choice."""
    for row in _preferred(capabilities.rows_of(requested.backend), facts):
        if row.fidelity is Fidelity.EXACT and row.unmet(call, facts) is None:
            return Selection(
                str(row.backend),
                row.name,
                source,
                requested,
                _rejections(row, call, facts, f"{row.name} serves {requested.backend}"),
            )
    return _automatic(call, facts, source, requested)


def _automatic(
    call: AttentionCall, facts: PlatformFacts, source: Source, requested: Request | None
) -> Selection:
    order = platform(facts.platform).order(facts)
    for name in order.implementations:
        row = capabilities.row(name)
        if row.fidelity is Fidelity.EXACT and row.unmet(call, facts) is None:
            why = f"{row.name} comes first in the automatic order ({order.why})"
            rejections = _rejections(row, call, facts, why)
            return Selection(str(row.backend), row.name, source, requested, rejections)
    reasons = "; ".join(
        f"{name} {capabilities.row(name).unmet(call, facts)}" for name in order.implementations
    )
    raise UnsupportedCall(f"No exact implementation serves {call.site or 'this call'}: {reasons}.")


def _rejections(
    taken: Implementation, call: AttentionCall, facts: PlatformFacts, otherwise: str
) -> tuple[Rejection, ...]:
    """Every implementation but the one taken, each with its reason."""
    return tuple(
        Rejection(row.name, row.unmet(call, facts) or _unasked(row, otherwise))
        for row in capabilities.rows()
        if row.name != taken.name
    )


def _unasked(row: Implementation, otherwise: str) -> str:
    if row.fidelity is Fidelity.EXACT:
        return f"could serve; {otherwise}"
    return f"could serve but is {row.fidelity}: never chosen unless requested"


def _reasons(request: Request, facts: PlatformFacts) -> str:
    return "; ".join(f"{row.name} {row.unmet_by_machine(facts)}" for row in _candidates(request))


def _unavailable(request: Request, facts: PlatformFacts) -> str:
    order = platform(facts.platform).order(facts).implementations
    can = [name for name in order if capabilities.row(name).unmet_by_machine(facts) is None]
    remedy = (
        f"Here {capabilities.row(can[0]).backend} would be chosen automatically"
        if can
        else "Nothing can be chosen here"
    )
    return (
        f"{request} cannot be served on this machine: {_reasons(request, facts)}. {remedy}; "
        "`ditport backends` explains every one."
    )
