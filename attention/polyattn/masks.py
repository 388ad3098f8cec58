"""What an attention mask asks for, and masks that ask for nothing."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

from polyattn.vocabulary import MaskKind


def mask_kind(mask: Tensor) -> MaskKind:
    """The kind of a mask that broadcasts to [batch, heads, query_len, kv_len]."""
    if mask.dtype is not torch.bool:
        return MaskKind.ADDITIVE
    same_for_every_query = mask.dim() >= 2 and mask.shape[-2] == 1
    same_for_every_head = mask.dim() < 3 or mask.shape[-3] == 1
    if same_for_every_query and same_for_every_head:
        return MaskKind.KEY_PADDING
    return MaskKind.BOOL


class MaskMemory:
    """Remembers which boolean masks are all true, once per tensor and version.

    Reading a mask synchronises its device, so it is read once however many calls share it. An
    in-place change raises the tensor's version and is read again. Inference tensors carry no
    version; they are kept as they are, never dropped.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Tensor], int, MaskKind]] = {}

    def kind(self, mask: Tensor) -> MaskKind:
        """The mask's kind; NONE where it is boolean and true everywhere."""
        if mask.dtype is not torch.bool or mask.is_inference():
            return mask_kind(mask)
        identity = id(mask)
        known = self._known.get(identity)
        if known is not None and known[0]() is mask and known[1] == mask._version:
            return known[2]
        kind = MaskKind.NONE if bool(mask.all()) else mask_kind(mask)
        forget = self._known.pop
        reference = weakref.ref(mask, lambda _: forget(identity, None))
        self._known[identity] = (reference, mask._version, kind)
        return kind


MEMORY = MaskMemory()
