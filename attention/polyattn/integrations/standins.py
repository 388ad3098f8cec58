"""Module-local stand-ins for `dispatch_attention_fn`, `F` and `nn` in diffusers' model modules.

A stand-in is put into the one module whose code calls it; torch and diffusers' dispatcher stay as
they are. Without a current site it passes through, so models that are not attached, and code
that shares a module with an attached model, are unaffected.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch.nn.functional
from torch import Tensor

from polyattn.errors import BypassedAttention, UnsupportedCall
from polyattn.integrations.identity import CURRENT
from polyattn.layers import LocalAttention

log = logging.getLogger("polyattn")

_lock = threading.Lock()
# (module name, name in it) -> (uses, the module's own value)
_installed: dict[tuple[str, str], tuple[int, Any]] = {}


def reaches(module: ModuleType, chain: tuple[str, ...]) -> bool:
    """Whether a stand-in can take the name by which the module's code reaches attention.

    `chain` is what the code reads: a global name, then attributes.
    """
    if not chain or chain[0] not in vars(module):
        return False
    value = vars(module)[chain[0]]
    if chain == ("dispatch_attention_fn",):
        return callable(value)
    return any(chain[1:] == attributes for attributes, was, now in _PLACES if value in (was, now))


def install(module: ModuleType, name: str) -> Callable[[], None]:
    """Put the stand-in for one of a module's names there, once however many pipelines use it.

    Returns what takes this use back; the last one restores the module's own value.
    """
    place = (module.__name__, name)
    with _lock:
        if place in _installed:
            uses, original = _installed[place]
        else:
            uses, original = 0, vars(module)[name]
            vars(module)[name] = _standin(name, original)
        _installed[place] = (uses + 1, original)
    return lambda: _release(module, name)


def _release(module: ModuleType, name: str) -> None:
    place = (module.__name__, name)
    with _lock:
        uses, original = _installed.pop(place)
        if uses > 1:
            _installed[place] = (uses - 1, original)
        else:
            vars(module)[name] = original


def _standin(name: str, original: Any) -> Any:
    if name == "dispatch_attention_fn":
        return _dispatch_standin(original)
    return next(now for _, was, now in _PLACES if was is original)


def _dispatch_standin(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def dispatch_attention_fn(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
        attention_kwargs: dict[str, Any] | None = None,
        *,
        backend: Any = None,
        parallel_config: Any = None,
    ) -> Tensor:
        layer = CURRENT.layer
        # A flex BlockMask (Kandinsky 5's NABLA, Wan Animate 2) is a kernel's own, not a mask.
        foreign = attn_mask is not None and not isinstance(attn_mask, Tensor)
        if layer is not None and foreign:
            _pass_on(layer, type(attn_mask).__name__)
        if layer is None or foreign:
            return original(
                query,
                key,
                value,
                attn_mask,
                dropout_p,
                is_causal,
                scale,
                enable_gqa,
                attention_kwargs,
                backend=backend,
                parallel_config=parallel_config,
            )
        if dropout_p or attention_kwargs or parallel_config is not None:
            _refuse(layer, dropout_p, attention_kwargs, parallel_config)
        # diffusers' native backend reads [batch, kv_len] as key padding, torch would not.
        if attn_mask is not None and attn_mask.shape == (query.shape[0], key.shape[1]):
            attn_mask = attn_mask[:, None, None, :]
        return layer(query, key, value, attn_mask, is_causal, scale)

    return dispatch_attention_fn


def attend_heads_first(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """torch.nn.functional's signature and layout: [..., heads, sequence, head_dim]."""
    layer = CURRENT.layer
    if layer is None:
        return torch.nn.functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=attn_mask,
            dropout_p=dropout_p,
            is_causal=is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
        )
    if dropout_p:
        _refuse(layer, dropout_p, None, None)
    if query.ndim == 3:  # [batch, sequence, head_dim]: one head
        if attn_mask is not None and attn_mask.ndim == 3:
            attn_mask = attn_mask[:, None]
        out = layer(
            query[:, :, None], key[:, :, None], value[:, :, None], attn_mask, is_causal, scale
        )
        return out[:, :, 0]
    return layer(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        attn_mask,
        is_causal,
        scale,
    ).transpose(1, 2)


# Sites whose calls went to diffusers' own kernels, and why.
passed_on: weakref.WeakKeyDictionary[LocalAttention, str] = weakref.WeakKeyDictionary()


def _pass_on(layer: LocalAttention, what: str) -> None:
    if layer in passed_on:
        return
    why = f"attends by a {what}, which only diffusers' own kernel reads"
    if layer.context.preferences.on_substitution == "error":
        raise BypassedAttention(
            f"{layer.site} {why}. Use --on-substitution warn to run nevertheless."
        )
    passed_on[layer] = why
    log.warning("%s %s: not routed", layer.site, why)


def _refuse(
    layer: LocalAttention, dropout_p: float, attention_kwargs: Any, parallel_config: Any
) -> None:
    if dropout_p:
        what = f"dropout_p={dropout_p}, and polyattn serves inference only"
    elif parallel_config is not None:
        what = "diffusers' context parallelism, which polyattn does not serve in this version"
    else:
        what = f"attention_kwargs {sorted(attention_kwargs)}, which belong to another backend"
    raise UnsupportedCall(f"{layer.site} asks for {what}. detach() the pipeline to run it without.")


def _copy(module: ModuleType, **changes: Any) -> ModuleType:
    # A copy of the namespace rather than __getattr__: every other function costs nothing more.
    standin = ModuleType(module.__name__, module.__doc__)
    vars(standin).update({**vars(module), **changes})
    return standin


_FUNCTIONAL = _copy(torch.nn.functional, scaled_dot_product_attention=attend_heads_first)
_ATTEND = "scaled_dot_product_attention"
# What module-level names may hold: the attributes that lead from there to torch's attention, the
# value, its stand-in. hunyuanvideo15's VAE says nn.functional.scaled_dot_product_attention.
_PLACES: tuple[tuple[tuple[str, ...], Any, Any], ...] = (
    ((_ATTEND,), torch.nn.functional, _FUNCTIONAL),
    (("functional", _ATTEND), torch.nn, _copy(torch.nn, functional=_FUNCTIONAL)),
    ((), torch.nn.functional.scaled_dot_product_attention, attend_heads_first),
)
