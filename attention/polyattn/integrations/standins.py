"""Module-local stand-ins for `dispatch_attention_fn` and `F` in diffusers' model modules.

A stand-in is put into the one module whose code calls it; torch and diffusers' dispatcher stay as
they are. Without a current site it passes through, so models that are not attached, and code
that shares a module with an attached model, are unaffected.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch.nn.functional
from torch import Tensor

from polyattn.errors import UnsupportedCall
from polyattn.integrations.identity import CURRENT
from polyattn.layers import LocalAttention

_lock = threading.Lock()
_installed: dict[str, tuple[int, Callable[[], None]]] = {}  # module name -> (uses, restore)


def has_seam(module: ModuleType) -> bool:
    """Whether the module calls attention through a name that a stand-in can take."""
    return _functional(module) or callable(getattr(module, "dispatch_attention_fn", None))


def install(module: ModuleType) -> Callable[[], None]:
    """Put the stand-ins into a module, once however many pipelines use it.

    Returns what takes this use back; the last one restores the module's own names.
    """
    with _lock:
        uses, restore = _installed.get(module.__name__, (0, None))
        _installed[module.__name__] = (uses + 1, restore or _replace_names(module))
    return lambda: _release(module.__name__)


def _release(name: str) -> None:
    with _lock:
        uses, restore = _installed.pop(name)
        if uses > 1:
            _installed[name] = (uses - 1, restore)
        else:
            restore()


def _replace_names(module: ModuleType) -> Callable[[], None]:
    names = vars(module)
    originals: dict[str, Any] = {}
    if callable(names.get("dispatch_attention_fn")):
        originals["dispatch_attention_fn"] = names["dispatch_attention_fn"]
        names["dispatch_attention_fn"] = _dispatch_standin(names["dispatch_attention_fn"])
    if _functional(module):
        originals["F"] = names["F"]
        names["F"] = _FUNCTIONAL
    return lambda: names.update(originals)


def _functional(module: ModuleType) -> bool:
    return vars(module).get("F") in (torch.nn.functional, _FUNCTIONAL)


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
        if layer is None:
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


def _scaled_dot_product_attention(
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


def _functional_standin() -> ModuleType:
    # A copy of the namespace rather than __getattr__: every other function costs nothing more.
    standin = ModuleType("torch.nn.functional", torch.nn.functional.__doc__)
    vars(standin).update(vars(torch.nn.functional))
    vars(standin)["scaled_dot_product_attention"] = _scaled_dot_product_attention
    return standin


_FUNCTIONAL = _functional_standin()
