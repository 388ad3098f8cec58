"""The token grid of a forward pass, per model family, from what the forward is given.

Each reader is made once, at attach, from the model's configuration; at each forward it looks at
shapes only (and at Flux's image ids once per tensor), so that it also runs inside a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.compiler import is_compiling

from polyattn.layers import GridKey

Reader: TypeAlias = Callable[[dict[str, Any]], GridKey]


def reader_for(model: nn.Module) -> Reader | None:
    """How to read the grid of this model's forward, or None where that is not known."""
    family = _FAMILIES.get(type(model).__name__)
    return family(model) if family is not None else None


def _wan(model: Any) -> Reader:
    """Wan: hidden_states [batch, channels, frames, height, width]."""
    patch_t, patch_h, patch_w = model.config.patch_size

    def read(inputs: dict[str, Any]) -> GridKey:
        _, _, frames, height, width = inputs["hidden_states"].shape
        return (frames // patch_t, height // patch_h, width // patch_w, 0, 0)

    return read


def _sd3(model: Any) -> Reader:
    """SD3: hidden_states [batch, channels, height, width]; text after the image."""
    patch = int(model.config.patch_size)

    def read(inputs: dict[str, Any]) -> GridKey:
        *_, height, width = inputs["hidden_states"].shape
        text = inputs.get("encoder_hidden_states")
        words = 0 if text is None else text.shape[1]
        return (1, height // patch, width // patch, words, 0)

    return read


def _flux(_: Any) -> Reader:
    """Flux: packed tokens with img_ids [tokens, 3] of (frame, row, column); text first.

    The ids are read once per tensor: the pipeline passes the same one at every step. Inside a
    graph they cannot be read, and the grid is not known.
    """
    known: list[tuple[Tensor, GridKey]] = []

    def read(inputs: dict[str, Any]) -> GridKey:
        ids = inputs.get("img_ids")
        text = inputs.get("encoder_hidden_states")
        if ids is None or text is None or is_compiling():
            return ()
        if not known or known[0][0] is not ids:
            flat = ids if ids.ndim == 2 else ids[0]
            frames, height, width = (int(n) + 1 for n in flat.amax(dim=0).tolist())
            known[:] = [(ids, (frames, height, width))]
        return (*known[0][1], text.shape[1], 1)

    return read


def _spatial(_: Any) -> Reader:
    """U-Nets: sample [batch, channels, height, width]; deeper levels halve it."""

    def read(inputs: dict[str, Any]) -> GridKey:
        *_, height, width = inputs["sample"].shape
        return (1, height, width, 0, 0)

    return read


def read_latents(latents: Tensor) -> GridKey:
    """VAE halves: [batch, channels, (frames,) height, width]."""
    frames = latents.shape[2] if latents.ndim == 5 else 1
    return (frames, latents.shape[-2], latents.shape[-1], 0, 0)


_FAMILIES: dict[str, Callable[[Any], Reader]] = {
    "WanTransformer3DModel": _wan,
    "FluxTransformer2DModel": _flux,
    "SD3Transformer2DModel": _sd3,
    "UNet2DConditionModel": _spatial,
}
PYRAMIDS = frozenset({"UNet2DConditionModel"})
