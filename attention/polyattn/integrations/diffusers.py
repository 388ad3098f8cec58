"""`attach(pipeline)`: every attention call of a diffusers pipeline goes through polyattn.

    from polyattn.integrations.diffusers import attach

    attachment = attach(pipeline, preferences)
    pipeline(prompt)
    print(attachment.report().table())
    attachment.detach()

Output with torch_sdpa is bit-identical to the pipeline's own. What is done to the pipeline's
objects is undone by detach(); torch and diffusers' registries are not touched.
"""

from __future__ import annotations

import inspect
import logging
import weakref
from collections.abc import Callable
from typing import Any

from torch import nn

from polyattn.call import Site
from polyattn.errors import BypassedAttention, NotAttached
from polyattn.executions import ExecutionReport, Snapshot, executions, snapshot
from polyattn.facts import PlatformFacts
from polyattn.integrations import standins
from polyattn.integrations.diffusers_grid import read_latents
from polyattn.integrations.families import family_of
from polyattn.integrations.identity import identify, is_identified
from polyattn.integrations.progress import follow
from polyattn.integrations.sites import Unrouted, find_sites
from polyattn.integrations.tracer import FirstForward
from polyattn.integrations.transformers import attach_encoder, is_transformers_model
from polyattn.layers import Context, GridKey, GridState, LocalAttention
from polyattn.preferences import NO_PREFERENCES, AttentionPreferences, is_denoiser
from polyattn.progress import Progress
from polyattn.selector import check_preferences

log = logging.getLogger("polyattn")

Undo = Callable[[], None]

_attachments: weakref.WeakKeyDictionary[Any, Attachment] = weakref.WeakKeyDictionary()


class Attachment:
    """What attach() did to a pipeline, what has run since, and the way back."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._undo: list[Undo] = []
        self._attached = True
        self.sites: list[Site] = []
        self.unrouted: list[Unrouted] = []
        self._checks: list[FirstForward] = []
        self._owners: list[tuple[Site, nn.Module]] = []  # of processors that announce a site

    @property
    def replaced(self) -> tuple[Site, ...]:
        """Sites whose processor was exchanged after attach(), by an IP-Adapter for example."""
        owners = self._owners if self._attached else ()
        return tuple(site for site, owner in owners if not is_identified(owner.processor))

    @property
    def checks(self) -> dict[str, str]:
        """What the self-check of each model says, by component."""
        return {check.component: check.status for check in self._checks}

    @property
    def kernels(self) -> tuple[tuple[str, str], ...]:
        """Which of torch's own kernels ran in each traced pass, by component."""
        return tuple((check.component, check.kernels) for check in self._checks if check.kernels)

    @property
    def progress(self) -> Progress:
        """The denoising step that is running."""
        return self._context.progress

    def snapshot(self) -> Snapshot:
        """The counts now, to report from later."""
        return snapshot(self._context.tallies)

    def report(self, since: Snapshot | None = None) -> ExecutionReport:
        """What ran since the snapshot, or since attach()."""
        return ExecutionReport(
            executions(self._context.tallies, since),
            (
                *map(str, self.unrouted),
                *(b for check in self._checks for b in check.bypasses),
                *(f"{site}: its processor was exchanged after attach()" for site in self.replaced),
                *(
                    f"{layer.site} {why}"
                    for layer, why in standins.passed_on.items()
                    if layer.context is self._context
                ),
            ),
            (
                *(f"{component}: {result}" for component, result in self.checks.items()),
                *(f"{component}: torch's kernels: {names}" for component, names in self.kernels),
            ),
        )

    def detach(self) -> None:
        """Restore every object that attach() changed. Raises NotAttached the second time."""
        if not self._attached:
            raise NotAttached("This pipeline is not attached any more.")
        self._attached = False
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()


def attach(
    pipeline: Any,
    preferences: AttentionPreferences = NO_PREFERENCES,
    facts: PlatformFacts | None = None,
) -> Attachment:
    """Route every attention call of the pipeline's models; see the module's example.

    `facts` default to a static probe of this machine. Raises what
    `polyattn.selector.check_preferences` raises, NotAttached where a model is attached already,
    and BypassedAttention where attention cannot be routed and `on_substitution` is "error". The
    first forward pass of each model is traced; under "error" a bypass seen then raises too.
    """
    if facts is None:
        from polyattn.probe import static_facts

        facts = static_facts()
    models = {
        name: _uncompiled(component)
        for name, component in pipeline.components.items()
        if isinstance(component, nn.Module)
    }
    # A model under two names (image_encoder and vision tower, say) is attached under the first.
    first = {id(model): name for name, model in reversed(models.items())}
    components = {name: model for name, model in models.items() if first[id(model)] == name}
    check_preferences(preferences, facts, models)
    taken = [name for name, model in components.items() if any(map(is_identified, _parts(model)))]
    if taken:
        raise NotAttached(
            f"{', '.join(taken)} is attached already, perhaps through another pipeline; "
            "detach() that one first."
        )
    attachment = Attachment(Context(facts, preferences))
    try:
        for name, model in components.items():
            if is_transformers_model(model):
                _attach_encoder(attachment, name, model)
            else:
                _attach_model(attachment, name, model)
        _refuse_unrouted(attachment, preferences)
    except BaseException:
        attachment.detach()
        raise
    attachment._undo.append(follow(pipeline, attachment._context.progress))
    _attachments[pipeline] = attachment
    attachment._undo.append(lambda: _forget(pipeline))
    return attachment


def _forget(pipeline: Any) -> None:
    _attachments.pop(pipeline, None)


def detach(pipeline: Any) -> None:
    """Undo attach(pipeline). Raises NotAttached."""
    attachment = _attachments.get(pipeline)
    if attachment is None:
        raise NotAttached("This pipeline is not attached.")
    attachment.detach()


def _attach_model(attachment: Attachment, component: str, model: nn.Module) -> None:
    context = attachment._context
    found, unrouted = find_sites(component, model)
    attachment.unrouted += unrouted
    denoiser = is_denoiser(component)
    family = family_of(model)
    grid = GridState(pyramid=not denoiser or family.pyramid)
    seen: set[int] = set()
    for place in found:
        on_grid = family.on_grid(place.site.path)
        layer = LocalAttention(context, place.site, grid if on_grid else GridState())
        if place.entry == "__call__" and id(place.target) in seen:
            attachment._undo.append(_own_processor(place.owner))
        seen.add(id(place.target))
        if getattr(place.target, "_attention_backend", None) is not None:
            log.warning("%s: diffusers' own attention backend is overruled", place.site)
        attachment._undo.append(identify(place.target, place.entry, layer))
        if place.entry == "__call__":
            attachment._owners.append((place.site, place.owner))
        attachment.sites.append(place.site)
    for module, name in dict.fromkeys(seam for place in found for seam in place.seams):
        attachment._undo.append(standins.install(module, name))
    if not found:
        return
    if denoiser:
        if family.grid is not None:
            attachment._undo.append(_watch_grid(model, grid, family.grid(model)))
        _check(attachment, component, model, model)
        return
    for name in ("encoder", "decoder"):
        half = getattr(model, name, None)
        if isinstance(half, nn.Module):
            attachment._undo.append(_watch_grid(half, grid, _first_input))
            _check(attachment, f"{component}.{name}", model, half)


def _attach_encoder(attachment: Attachment, component: str, model: nn.Module) -> None:
    def make_layer(site: Site) -> LocalAttention:
        attachment.sites.append(site)
        return LocalAttention(attachment._context, site)

    undo, unrouted = attach_encoder(component, model, make_layer)
    attachment._undo += undo
    attachment.unrouted += unrouted
    if undo:
        _check(attachment, component, model, model)


def _own_processor(owner: nn.Module) -> Undo:
    """Give a module that shares its processor a copy of it, so that each site has an identity."""
    import copy

    shared: Any = owner.processor
    owner.processor = copy.copy(shared)

    def undo() -> None:
        owner.processor = shared

    return undo


def _first_input(inputs: dict[str, Any]) -> GridKey:
    return read_latents(next(iter(inputs.values())))


def _watch_grid(
    module: nn.Module, grid: GridState, read: Callable[[dict[str, Any]], GridKey]
) -> Undo:
    names = tuple(inspect.signature(type(module).forward).parameters)[1:]

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            grid.key = read({**dict(zip(names, args, strict=False)), **kwargs})
        except (KeyError, ValueError, AttributeError):
            grid.key = ()  # another calling convention: the grid is not known, nothing fails

    return module.register_forward_pre_hook(before, with_kwargs=True).remove


def _check(attachment: Attachment, component: str, model: nn.Module, entry: nn.Module) -> None:
    check = FirstForward(component, model, entry, attachment._context)
    attachment._checks.append(check)
    attachment._undo.append(check.disarm)


def _refuse_unrouted(attachment: Attachment, preferences: AttentionPreferences) -> None:
    if not attachment.unrouted:
        return
    message = "Attention that polyattn cannot route: " + "; ".join(map(str, attachment.unrouted))
    if preferences.on_substitution == "error":
        raise BypassedAttention(f"{message}. Use --on-substitution warn to run nevertheless.")
    log.warning("%s", message)


def _uncompiled(module: nn.Module) -> nn.Module:
    """The module inside torch.compile()'s wrapper, or itself."""
    inner = getattr(module, "_orig_mod", module)
    return inner if isinstance(inner, nn.Module) else module


def _parts(model: nn.Module) -> list[Any]:
    return [
        part
        for module in model.modules()
        for part in (module, getattr(module, "processor", None))
        if part is not None
    ]
