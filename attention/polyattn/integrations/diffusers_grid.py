"""The token grid of a forward pass, per model family, from what the forward is given.

Each reader is made once, at attach, from the model's configuration; at each forward it looks at
shapes (and at the contents of a few small tensors once per tensor), so that it also runs inside a
graph. Inside a graph contents cannot be read: there such a grid is not known.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor
from torch.compiler import is_compiling

from polyattn.layers import GridKey

Reader: TypeAlias = Callable[[dict[str, Any]], GridKey]


def _patches(model: Any) -> tuple[int, int, int]:
    """The patch sizes along frames, height and width, however the configuration says them."""
    config = model.config
    size = getattr(config, "patch_size", None) or 1
    if isinstance(size, int):
        return int(getattr(config, "patch_size_t", None) or 1), size, size
    first, *others = size
    return (first, *others) if len(others) == 2 else (1, first, *others)


def _tokens(latents: Tensor, patches: tuple[int, int, int]) -> tuple[int, int, int]:
    """Frames, height and width in tokens of [batch, channels, (frames,) height, width]."""
    patch_t, patch_h, patch_w = patches
    frames = latents.shape[2] if latents.ndim == 5 else patch_t
    height, width = latents.shape[-2:]
    return frames // patch_t, height // patch_h, width // patch_w


def _length(inputs: dict[str, Any], names: tuple[str, ...]) -> int:
    """How many tokens these inputs [batch, tokens, ...] are together."""
    given = (inputs.get(name) for name in names)
    return sum(int(value.shape[1]) for value in given if value is not None)


def video(model: Any) -> Reader:
    """hidden_states [batch, channels, (frames,) height, width]; text has its own attention."""
    patches = _patches(model)
    return lambda inputs: (*_tokens(inputs["hidden_states"], patches), 0, 0)


def text_after(*names: str) -> Callable[[Any], Reader]:
    """As `video`, followed by the tokens of these inputs in the same sequence."""
    return _with_text(names, 0)


def text_before(*names: str) -> Callable[[Any], Reader]:
    """As `video`, preceded by the tokens of these inputs in the same sequence."""
    return _with_text(names, 1)


def _with_text(names: tuple[str, ...], first: int) -> Callable[[Any], Reader]:
    def make(model: Any) -> Reader:
        patches = _patches(model)

        def read(inputs: dict[str, Any]) -> GridKey:
            grid = _tokens(inputs["hidden_states"], patches)
            return (*grid, _length(inputs, names), first)

        return read

    return make


def auraflow(model: Any) -> Reader:
    """AuraFlow: register tokens, then text, then the image."""
    registers = int(model.register_tokens.shape[1])
    read_text = text_before("encoder_hidden_states")(model)

    def read(inputs: dict[str, Any]) -> GridKey:
        frames, height, width, words, first = read_text(inputs)
        return (frames, height, width, words + registers, first)

    return read


def told(model: Any) -> Reader:
    """LTX: packed tokens; the forward is told frames, height and width of the latents."""
    patch_t, patch_h, patch_w = _patches(model)

    def read(inputs: dict[str, Any]) -> GridKey:
        frames, height, width = (inputs[name] for name in ("num_frames", "height", "width"))
        return (frames // patch_t, height // patch_h, width // patch_w, 0, 0)

    return read


def cogvideox(model: Any) -> Reader:
    """CogVideoX: hidden_states [batch, frames, channels, height, width]; text first."""
    patch_t, patch_h, patch_w = _patches(model)

    def read(inputs: dict[str, Any]) -> GridKey:
        _, frames, _, height, width = inputs["hidden_states"].shape
        words = _length(inputs, ("encoder_hidden_states",))
        return (frames // patch_t, height // patch_h, width // patch_w, words, 1)

    return read


def kandinsky5(model: Any) -> Reader:
    """Kandinsky 5: hidden_states [batch, frames, height, width, channels]."""
    patch_t, patch_h, patch_w = _patches(model)

    def read(inputs: dict[str, Any]) -> GridKey:
        _, frames, height, width, _ = inputs["hidden_states"].shape
        return (frames // patch_t, height // patch_h, width // patch_w, 0, 0)

    return read


def qwen(_: Any) -> Reader:
    """QwenImage: img_shapes holds, per item, the grids of its images; text first."""

    def read(inputs: dict[str, Any]) -> GridKey:
        shapes = {tuple(image) for item in inputs["img_shapes"] for image in _images(item)}
        several = any(len(_images(item)) != 1 for item in inputs["img_shapes"])
        if len(shapes) != 1 or several:
            return ()  # edited images follow in the same sequence: more than one grid
        frames, height, width = shapes.pop()
        return (frames, height, width, _length(inputs, ("encoder_hidden_states",)), 1)

    return read


def _images(item: Any) -> list[Any]:
    return [item] if isinstance(item[0], int) else list(item)


def hidream(model: Any) -> Reader:
    """HiDream: the image, then T5's words, Llama's last layer and Llama's current layer."""
    patches = _patches(model)

    def read(inputs: dict[str, Any]) -> GridKey:
        llama = int(inputs["encoder_hidden_states_llama3"].shape[2])
        words = _length(inputs, ("encoder_hidden_states_t5",)) + 2 * llama
        return (*_tokens(inputs["hidden_states"], patches), words, 0)

    return read


def z_image(_: Any) -> Reader:
    """Z-Image: lists of images and captions, each padded to whole 32s; the image first.

    An image that is no multiple of 32 tokens is followed by padding, which no grid describes.
    """

    def read(inputs: dict[str, Any]) -> GridKey:
        patch, patch_t = inputs.get("patch_size", 2), inputs.get("f_patch_size", 1)
        images = {tuple(image.shape[-3:]) for image in inputs["x"]}
        lengths = {-(-len(caption) // 32) * 32 for caption in inputs["cap_feats"]}
        if len(images) != 1 or len(lengths) != 1:
            return ()
        frames, height, width = images.pop()
        return (frames // patch_t, height // patch, width // patch, lengths.pop(), 0)

    return read


class Memory:
    """What was read from a tensor's contents, once per tensor and version.

    The pipeline passes the same tensor at every step, and reading it waits for the device.
    """

    def __init__(self, read: Callable[[Tensor], tuple[int, ...]]) -> None:
        self._read = read
        self._known: tuple[Any, int, tuple[int, ...]] | None = None

    def __call__(self, tensor: Tensor) -> tuple[int, ...]:
        version = -1 if tensor.is_inference() else tensor._version
        if self._known is not None:
            reference, read_at, value = self._known
            if reference() is tensor and read_at == version:
                return value
        value = self._read(tensor)
        self._known = (weakref.ref(tensor), version, value)
        return value


def by_ids(_: Any) -> Reader:
    """Flux: packed tokens with img_ids [tokens, 3 or 4] of (frame, row, column); text first."""

    def size(ids: Tensor) -> tuple[int, ...]:
        flat = ids if ids.ndim == 2 else ids[0]
        return tuple(int(n) + 1 for n in flat.amax(dim=0).tolist()[:3])

    memory = Memory(size)

    def read(inputs: dict[str, Any]) -> GridKey:
        ids, text = inputs.get("img_ids"), inputs.get("encoder_hidden_states")
        if ids is None or text is None or is_compiling():
            return ()
        return (*memory(ids), int(text.shape[1]), 1)

    return read


def mochi(model: Any) -> Reader:
    """Mochi: the video, then those words that the mask keeps, item by item."""
    return _with_valid_text(model, 0)


def lumina2(model: Any) -> Reader:
    """Lumina 2: those words that the mask keeps, then the image."""
    return _with_valid_text(model, 1)


def _with_valid_text(model: Any, first: int) -> Reader:
    patches = _patches(model)
    memory = Memory(lambda mask: tuple(int(n) for n in set(mask.bool().sum(dim=1).tolist())))

    def read(inputs: dict[str, Any]) -> GridKey:
        if is_compiling():
            return ()
        counts = memory(inputs["encoder_attention_mask"])
        if len(counts) != 1:
            return ()  # as with guidance: items of different lengths lie differently
        return (*_tokens(inputs["hidden_states"], patches), counts[0], first)

    return read


def spatial(_: Any) -> Reader:
    """U-Nets: sample [batch, channels, height, width]; deeper levels halve it."""

    def read(inputs: dict[str, Any]) -> GridKey:
        *_, height, width = inputs["sample"].shape
        return (1, height, width, 0, 0)

    return read


def read_latents(latents: Tensor) -> GridKey:
    """VAE halves: [batch, channels, (frames,) height, width]."""
    return (*_tokens(latents, (1, 1, 1)), 0, 0)
