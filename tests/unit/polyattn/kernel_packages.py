"""Stand-ins for the kernels' packages: their signatures, their habits, the oracle's arithmetic.

Each computes what the real function documents (causal attention aligned at the last key, say),
does to its arguments what the real one does, and records how it was called. `SIGNATURES` are
compared with the released packages by tests/unit/polyattn/test_adapters_drift.py.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from polyattn.oracle import dense

# "module.function": its parameters, as its source says them, without annotations.
SIGNATURES: Final = {
    # flash-attn 2.8.3
    "flash_attn.flash_attn_func": (
        "q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), "
        "softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False"
    ),
    "flash_attn.flash_attn_varlen_func": (
        "q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, "
        "softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, "
        "alibi_slopes=None, deterministic=False, return_attn_probs=False, block_table=None"
    ),
    # sgl-kernel 0.3: sgl-kernel/python/sgl_kernel/flash_attn.py; later ones append to it
    "sgl_kernel.flash_attn.flash_attn_varlen_func": (
        "q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q=None, "
        "seqused_k=None, softmax_scale=None, causal=False, qv=None, q_descale=None, "
        "k_descale=None, v_descale=None, window_size=(-1, -1), softcap=0.0, num_splits=1, "
        "pack_gqa=None, sm_margin=0, return_softmax_lse=False"
    ),
    # flash-attention/hopper/flash_attn_interface.py
    "flash_attn_interface.flash_attn_func": (
        "q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, "
        "v_descale=None, window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, "
        "pack_gqa=None, deterministic=False, sm_margin=0, return_attn_probs=False"
    ),
    "flash_attn_interface.flash_attn_varlen_func": (
        "q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q=None, "
        "seqused_k=None, softmax_scale=None, causal=False, qv=None, q_descale=None, "
        "k_descale=None, v_descale=None, window_size=(-1, -1), attention_chunk=0, softcap=0.0, "
        "num_splits=1, pack_gqa=None, deterministic=False, sm_margin=0, return_attn_probs=False"
    ),
    # flash-attn-4 4.0.0b36
    "flash_attn.cute.flash_attn_func": (
        "q, k, v, qv=None, gather_kv_indices=None, softmax_scale=None, causal=False, "
        "window_size=(None, None), learnable_sink=None, softcap=0.0, num_splits=1, "
        "pack_gqa=None, deterministic=False, score_mod=None, score_mod_bwd=None, mask_mod=None, "
        "aux_tensors=None, aux_scalars=None, block_sparse_tensors=None, "
        "block_sparse_tensors_bwd=None, return_lse=False, gather_bwd_recompute_p=False, "
        "gather_bwd_token_chunk=None"
    ),
    # sageattention 1.0.6, and 2.2 (core.py)
    "sageattention.sageattn": (
        "q, k, v, tensor_layout='HND', is_causal=False, sm_scale=None, smooth_k=True, **kwargs"
    ),
    "sageattention2.sageattn": (
        "q, k, v, tensor_layout='HND', is_causal=False, sm_scale=None, return_lse=False, **kwargs"
    ),
    # SageAttention/sageattention3_blackwell/sageattn3/api.py
    "sageattn3.sageattn3_blackwell": (
        "q, k, v, attn_mask=None, is_causal=False, per_block_mean=True, **kwargs"
    ),
    # amd-aiter 0.1.7.post2.dev18
    "aiter.ops.mha.flash_attn_func": (
        "q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), "
        "bias=None, alibi_slopes=None, deterministic=True, return_lse=False, "
        "return_attn_probs=False, how_v3_bf16_cvt=1, cu_seqlens_q=None, cu_seqlens_kv=None"
    ),
}


@dataclass
class Recorder:
    """The calls that stand-ins got, by function, with every argument by name."""

    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


def bound(signature: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by parameter; raises TypeError where the signature does not take them."""
    parameters = inspect.signature(eval(f"lambda {signature}: None"))
    arguments = parameters.bind(*args, **kwargs)
    arguments.apply_defaults()
    return arguments.arguments


def described(source: str, function: str) -> str:
    """A function's parameters in a module's source, without annotations."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            for argument in [*node.args.args, node.args.vararg, node.args.kwarg]:
                if argument is not None:
                    argument.annotation = None
            return ast.unparse(node.args)
    raise LookupError(function)


def _fitting(query: Tensor, key: Tensor) -> Tensor:
    """FlashAttention's causal mask: the last query stands at the last key."""
    query_len, kv_len = query.shape[1], key.shape[1]
    mask = torch.ones(query_len, kv_len, dtype=torch.bool)
    return mask.tril(kv_len - query_len)


def _attend(query: Tensor, key: Tensor, value: Tensor, scale: float | None, causal: bool) -> Tensor:
    mask = _fitting(query, key) if causal else None
    out, _ = dense.attend(query, key, value, mask=mask, softmax_scale=scale)
    return out.to(query.dtype)


def _no_more(arguments: dict[str, Any], signature: str, used: set[str]) -> None:
    """Everything else keeps its default: what is passed and not read would be lost."""
    defaults = bound(signature, (None,) * 3, dict.fromkeys(_required(signature)[3:]))
    for name, value in arguments.items():
        if name not in used:
            assert value == defaults[name], f"{name}={value!r} is not what the stand-in computes"


def _required(signature: str) -> list[str]:
    parameters = inspect.signature(eval(f"lambda {signature}: None")).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]


def _equal(name: str, recorder: Recorder, wrap: Callable[[Tensor], Any]) -> Callable[..., Any]:
    signature = SIGNATURES[name]

    def flash_attn_func(*args: Any, **kwargs: Any) -> Any:
        given = bound(signature, args, kwargs)
        recorder.calls.append((name, given))
        _no_more(given, signature, {"q", "k", "v", "softmax_scale", "causal"})
        q, k, v = given["q"], given["k"], given["v"]
        assert all(tensor.stride(-1) == 1 for tensor in (q, k, v))
        return wrap(_attend(q, k, v, given["softmax_scale"], given["causal"]))

    return flash_attn_func


def _packed(name: str, recorder: Recorder, wrap: Callable[[Tensor], Any]) -> Callable[..., Any]:
    signature = SIGNATURES[name]
    lengths = {"cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"}

    def flash_attn_varlen_func(*args: Any, **kwargs: Any) -> Any:
        given = bound(signature, args, kwargs)
        recorder.calls.append((name, given))
        _no_more(given, signature, {"q", "k", "v", "softmax_scale", "causal", *lengths})
        q, k, v = given["q"], given["k"], given["v"]
        starts = {}
        for which, tensor in (("q", q), ("k", k)):
            cu = given[f"cu_seqlens_{which}"]
            assert cu.dtype is torch.int32
            assert cu.device == q.device
            assert cu.is_contiguous()
            starts[which] = cu.tolist()
            assert starts[which][-1] == len(tensor)
            sizes = cu.diff().tolist()
            assert max(sizes) <= given[f"max_seqlen_{which}"]
        out = q.new_full((*q.shape[:2], v.shape[2]), float("nan"))
        for item in range(len(starts["q"]) - 1):
            rows = slice(*starts["q"][item : item + 2])
            keys = slice(*starts["k"][item : item + 2])
            if keys.start == keys.stop:
                continue  # kernels differ in what they leave there
            out[rows] = _attend(
                q[None, rows],
                k[None, keys],
                v[None, keys],
                given["softmax_scale"],
                given["causal"],
            )[0]
        return wrap(out)

    return flash_attn_varlen_func


def _sage(name: str, recorder: Recorder, mutates: bool) -> Callable[..., Any]:
    def sageattn(*args: Any, **kwargs: Any) -> Tensor:
        given = bound(SIGNATURES[name], args, kwargs)
        recorder.calls.append((name, given))
        assert given["tensor_layout"] == "NHD"
        assert given["kwargs"] == {}, "sageattn would swallow these"
        q, k, v = given["q"], given["k"], given["v"]
        assert all(tensor.stride(-1) == 1 for tensor in (q, k, v))
        out = _attend(q, k, v, given["sm_scale"], given["is_causal"])
        if mutates:
            k -= k.mean(dim=1, keepdim=True)
        return out

    return sageattn


def _sage3(recorder: Recorder) -> Callable[..., Any]:
    name = "sageattn3.sageattn3_blackwell"

    def sageattn3_blackwell(*args: Any, **kwargs: Any) -> Tensor:
        given = bound(SIGNATURES[name], args, kwargs)
        recorder.calls.append((name, given))
        assert given["attn_mask"] is None
        assert given["kwargs"] == {}
        q, k, v = (given[n].transpose(1, 2) for n in "qkv")  # it takes [B, H, S, D]
        out = _attend(q, k, v, None, given["is_causal"]).transpose(1, 2)
        key = given["k"]
        key -= key.mean(dim=-2, keepdim=True)
        return out

    return sageattn3_blackwell


def install(row: str, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Put the stand-in of a row's package into sys.modules, until the test ends."""
    recorder = Recorder()

    def plain(out: Tensor) -> Tensor:
        return out

    def with_lse(out: Tensor) -> tuple[Tensor, None]:
        return out, None

    modules: dict[str, dict[str, Any]] = {
        "fa2": {
            "flash_attn": {
                "flash_attn_func": _equal("flash_attn.flash_attn_func", recorder, plain),
                "flash_attn_varlen_func": _packed(
                    "flash_attn.flash_attn_varlen_func", recorder, plain
                ),
            }
        },
        "fa3": {
            "sgl_kernel": {},
            "sgl_kernel.flash_attn": {
                "flash_attn_varlen_func": _packed(
                    "sgl_kernel.flash_attn.flash_attn_varlen_func", recorder, plain
                )
            },
        },
        "fa3_hopper": {
            "flash_attn_interface": {
                "flash_attn_func": _equal("flash_attn_interface.flash_attn_func", recorder, plain),
                "flash_attn_varlen_func": _packed(
                    "flash_attn_interface.flash_attn_varlen_func", recorder, with_lse
                ),
            }
        },
        "fa4": {
            "flash_attn": {},
            "flash_attn.cute": {
                "flash_attn_func": _equal("flash_attn.cute.flash_attn_func", recorder, with_lse)
            },
        },
        "sage1": {"sageattention": {"sageattn": _sage("sageattention.sageattn", recorder, True)}},
        "sage2": {"sageattention": {"sageattn": _sage("sageattention2.sageattn", recorder, False)}},
        "sage3": {"sageattn3": {"sageattn3_blackwell": _sage3(recorder)}},
        "aiter": {
            "aiter": {},
            "aiter.ops": {},
            "aiter.ops.mha": {
                "flash_attn_func": _equal("aiter.ops.mha.flash_attn_func", recorder, plain)
            },
        },
    }
    for name, contents in modules[row].items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, f"polyattn.backends.{row}", raising=False)
    return recorder
