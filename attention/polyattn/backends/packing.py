"""Key padding for kernels that take no mask: the valid keys of all items, one after the other.

A key-padding mask says the same to every query and head, so the masked keys can be left out
instead, wherever they stand: they need not be a suffix. Where each mask's valid keys are is read
once per mask tensor and version, since reading waits for the device.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Where the valid keys of a batch are, as variable-length kernels want it said."""

    keys: Tensor  # int64: which rows of [batch * kv_len, heads, head_dim] are valid
    starts: Tensor  # int32 [batch + 1]: where each item's keys start among them, and the end
    longest: int  # the most valid keys of an item
    empty: Tensor | None  # bool [batch]: items without a valid key; None where there are none

    def pack(self, tensor: Tensor) -> Tensor:
        """The valid rows of [batch, kv_len, heads, head_dim]."""
        return tensor.flatten(0, 1).index_select(0, self.keys)


def uniform_starts(batch: int, length: int, device: torch.device) -> Tensor:
    """The starts of `batch` items of one length, and the end: int32, on the device."""
    return torch.arange(0, (batch + 1) * length, length, dtype=torch.int32, device=device)


_known: dict[int, tuple[weakref.ref[Tensor], tuple[Any, ...], Packing]] = {}


def packing(mask: Tensor, batch: int, kv_len: int) -> Packing:
    """The packing of a bool mask that broadcasts to [batch, 1, 1, kv_len]."""
    version = None if mask.is_inference() else mask._version
    if version is None:  # such a tensor may change unseen
        return _read(mask, batch, kv_len)
    key, state = id(mask), (version, batch, kv_len)
    known = _known.get(key)
    if known is not None and known[0]() is mask and known[1] == state:
        return known[2]
    found = _read(mask, batch, kv_len)
    forget = _known.pop
    _known[key] = (weakref.ref(mask, lambda _: forget(key, None)), state, found)
    return found


def _read(mask: Tensor, batch: int, kv_len: int) -> Packing:
    valid = mask.reshape(-1, mask.shape[-1]).expand(batch, kv_len)
    counts = valid.sum(dim=1, dtype=torch.int32)
    starts = torch.nn.functional.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))
    lengths = counts.tolist()
    return Packing(
        keys=valid.flatten().nonzero().flatten(),
        starts=starts,
        longest=max(lengths),
        empty=counts == 0 if 0 in lengths else None,
    )
