"""Text encoders of Hugging Face transformers, by its public attention interface.

transformers' own SDPA function does more than attend (position bias of T5, causal slices, grouped
heads). A private copy of it runs with one name replaced, so that this stays upstream's.
https://huggingface.co/docs/transformers/attention_interface
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any, Final

import torch
from torch import Tensor, nn

from polyattn.call import Site
from polyattn.integrations.identity import CURRENT
from polyattn.integrations.sites import Unrouted
from polyattn.integrations.standins import attend_heads_first
from polyattn.layers import LocalAttention
from polyattn.vocabulary import Role

NAME: Final = "polyattn"
_LAYER: Final = "_polyattn_layer"
_INTERFACE: Final = "ALL_ATTENTION_FUNCTIONS"


def is_transformers_model(model: nn.Module) -> bool:
    """Whether a component is transformers' rather than diffusers'."""
    return any(base.__module__.startswith("transformers.") for base in type(model).__mro__)


def attach_encoder(
    component: str, model: Any, make_layer: Callable[[Site], LocalAttention]
) -> tuple[list[Callable[[], None]], list[Unrouted]]:
    """Route a transformers model's attention; returns what undoes it and what is not routed."""
    sites = [
        (path, module) for path, module in model.named_modules() if _calls_interface(type(module))
    ]
    former = getattr(model.config, "_attn_implementation", None)
    if not sites or former != "sdpa":
        why = f"{type(model).__name__} attends by {former!r}, not by 'sdpa'"
        return [], [Unrouted(component, "", why)]
    _register()
    for index, (path, module) in enumerate(sites):
        role = Role.CROSS if getattr(module, "is_cross_attention", False) else Role.SELF
        object.__setattr__(module, _LAYER, make_layer(Site(component, path, index, role)))
    model.set_attn_implementation(NAME)

    def undo() -> None:
        model.set_attn_implementation(former)
        for _, module in sites:
            object.__delattr__(module, _LAYER)

    return [undo], []


def _calls_interface(kind: Any) -> bool:
    forward = kind.forward
    while hasattr(forward, "__wrapped__"):
        forward = forward.__wrapped__
    return isinstance(forward, FunctionType) and _INTERFACE in forward.__code__.co_names


def _attend(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[Tensor, None]:
    outer = CURRENT.layer
    CURRENT.layer = getattr(module, _LAYER, None)
    try:
        result: tuple[Tensor, None] = _upstream()(module, *args, **kwargs)
        return result
    finally:
        CURRENT.layer = outer


_copy: list[Callable[..., Any]] = []


def _upstream() -> Callable[..., Any]:
    """transformers' SDPA function, reading `torch.nn.functional` as our stand-in."""
    if not _copy:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward as upstream

        functional = SimpleNamespace(scaled_dot_product_attention=attend_heads_first)
        view = SimpleNamespace(**{name: getattr(torch, name) for name in ("Tensor", "jit")})
        view.nn = SimpleNamespace(functional=functional)
        names = {**upstream.__globals__, "torch": view}
        copy = FunctionType(
            upstream.__code__, names, upstream.__name__, upstream.__defaults__, upstream.__closure__
        )
        copy.__kwdefaults__ = upstream.__kwdefaults__
        _copy.append(copy)
    return _copy[0]


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
