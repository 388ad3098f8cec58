"""LoRA: found and looked at before the model loads, then handed to the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditport.errors import LoraRefused, UsageError
from ditport.models.source import HUB_ID
from ditport.models.weights import damage, read_header
from ditport.options import nonempty, real, setting

if TYPE_CHECKING:
    from ditport.models.description import ModelDescription


@dataclass(frozen=True)
class LoraSettings:
    """The LoRA options."""

    lora_path: tuple[str, ...] = setting(
        "--lora-path",
        default=(),
        parse=nonempty,
        metavar="LORA",
        many=True,
        help="a .safetensors file, a folder, or a Hugging Face id; several are added up",
    )
    lora_nickname: tuple[str, ...] = setting(
        "--lora-nickname",
        default=(),
        parse=nonempty,
        metavar="NAME",
        many=True,
        help="names, in the same order (default: default)",
    )
    lora_scale: tuple[float, ...] = setting(
        "--lora-scale",
        default=(),
        parse=real(),
        metavar="X",
        many=True,
        help="weights, in the same order (default 1)",
    )


@dataclass(frozen=True)
class Lora:
    """One adapter."""

    path: str
    name: str
    scale: float


@dataclass(frozen=True)
class LoraPlan:
    """The adapters to load."""

    loras: tuple[Lora, ...] = ()


def plan(settings: LoraSettings, model: ModelDescription) -> LoraPlan:
    """Pair paths with names and weights. Raises LoraRefused for what cannot be loaded."""
    paths, names, scales = settings.lora_path, settings.lora_nickname, settings.lora_scale
    if len(names) > len(paths) or len(scales) > len(paths):
        raise UsageError(
            "There are more --lora-nickname or --lora-scale values than --lora-path values."
        )
    if not paths:
        return LoraPlan()
    if model.signature is not None and not model.signature.loads_lora:
        raise LoraRefused(f"{model.pipeline} cannot load a LoRA.", "Its class has no loader.")
    unnamed = ("default", *(f"default_{n}" for n in range(2, len(paths) + 1)))
    for path in paths:
        _check(path)
    return LoraPlan(
        tuple(
            Lora(
                path=path,
                name=names[n] if n < len(names) else unnamed[n],
                scale=scales[n] if n < len(scales) else 1.0,
            )
            for n, path in enumerate(paths)
        )
    )


def _check(named: str) -> None:
    path = Path(named).expanduser()
    if path.is_file():
        if path.suffix != ".safetensors":
            raise LoraRefused(f"{named} is not a .safetensors file.")
        reason = damage(path)
        keys = [key.lower() for key in read_header(path) or ()]
        if reason is None and not any("lora" in key or "hada" in key for key in keys):
            reason = "holds no LoRA weights"
        if reason:
            raise LoraRefused(f"{named} {reason}.")
    elif path.is_dir():
        if not any(path.glob("*.safetensors")):
            raise LoraRefused(f"{named} holds no .safetensors file.")
    elif not HUB_ID.match(named):
        raise LoraRefused(
            f"There is no LoRA {named!r}.",
            "It is no file or folder here, and no Hugging Face id (owner/name).",
        )


def apply(plan: LoraPlan, pipeline: Any) -> None:
    """Load the adapters and set their weights."""
    for lora in plan.loras:
        path = Path(lora.path).expanduser()
        location: Mapping[str, str] = {}
        where = lora.path
        if path.is_file():
            where, location = str(path.parent), {"weight_name": path.name}
        try:
            pipeline.load_lora_weights(where, adapter_name=lora.name, **location)
        except (ValueError, KeyError, OSError, RuntimeError) as error:
            raise LoraRefused(
                f"{lora.path} does not fit {type(pipeline).__name__}.", f"{error}"
            ) from error
    if plan.loras:
        pipeline.set_adapters(
            [lora.name for lora in plan.loras], [lora.scale for lora in plan.loras]
        )
