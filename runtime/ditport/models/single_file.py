"""Single .safetensors files: which model's configs they go with, and loading them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ditport.errors import LoadFailed, LoraRefused, ModelForeign, ModelIncomplete, ModelMissing
from ditport.generation.events import Sink
from ditport.models.components import dtype_argument, load_component
from ditport.models.description import ModelDescription
from ditport.models.folder import describe
from ditport.models.source import HUB_ID, ModelSettings, ModelSource
from ditport.models.weights import damage, read_header

MISSING_COMPONENT: Final = re.compile(r"Failed to load (\w+)")


@dataclass(frozen=True)
class Tensor:
    """A tensor's shape, as far as guessing a family needs one."""

    shape: tuple[int, ...]


def describe_file(source: ModelSource, settings: ModelSettings, sink: Sink) -> ModelDescription:
    """The description of the model whose configs a single file goes with."""
    header = read_header(source.path)
    if reason := damage(source.path):
        raise ModelIncomplete(f"{source.name} {reason}.", "", "Download or copy it again.")
    assert header is not None  # damage() says so otherwise
    keys = [name for name in header if name != "__metadata__"]
    if any(".lora_" in key or "lora_A" in key for key in keys):
        raise LoraRefused(
            f"{source.name} is a LoRA, not a model.",
            f"It holds {len(keys)} tensors such as {keys[0]}.",
            "Give its base model to --model-path and this file to --lora-path.",
        )
    named = settings.single_file_config
    if named is None:
        named = family(header)
    folder = Path(named).expanduser()
    if folder.is_dir():
        configs = folder.resolve()
    elif HUB_ID.match(named):
        from ditport.models.hub import fetch_configs

        configs = fetch_configs(named, sink)
    else:
        raise ModelMissing(f"There is no folder or Hugging Face id {named!r} for the configs.")
    base = ModelSource(named, "hub", configs)
    described = describe(base, settings.trust_remote_code, weights=False)
    return dataclasses.replace(described, source=source, configs_folder=configs)


def family(header: Mapping[str, Any]) -> str:
    """The Hugging Face id of the model that a checkpoint is one of, as diffusers guesses it."""
    # The only refusal that imports torch: the guess is diffusers' and needs its tables.
    from diffusers.loaders import single_file_utils as tables

    tensors = {
        name: Tensor(tuple(entry["shape"]))
        for name, entry in header.items()
        if name != "__metadata__"
    }
    kind = tables.infer_diffusers_model_type(tensors)
    # It answers v1 for whatever it does not know.
    if kind == "v1" and not any(name.startswith("model.diffusion_model.") for name in tensors):
        raise ModelForeign(
            "This single file is of no family that diffusers knows.",
            f"It holds {len(tensors)} tensors such as {next(iter(tensors), 'none')}.",
            "Name the model that it goes with: --single-file-config FOLDER or owner/name.",
        )
    return str(tables.DIFFUSERS_DEFAULT_PIPELINE_PATHS[kind]["pretrained_model_name_or_path"])


def load(model: ModelDescription, pipeline_class: Any, dtype: str) -> Any:
    """A pipeline with its weights from a single file, and from the config folder what it lacks."""
    folder = model.configs_folder
    assert folder is not None, model
    common = {**dtype_argument(dtype), "local_files_only": True}
    if not hasattr(pipeline_class, "from_single_file"):
        return pipeline_class.from_pretrained(
            str(folder), **{model.denoisers[0]: _denoiser(model, folder, common)}, **common
        )
    components: dict[str, Any] = {}
    while True:
        try:
            return pipeline_class.from_single_file(
                str(model.source.path), config=str(folder), **components, **common
            )
        except Exception as error:
            # SingleFileComponentError, whose module differs between diffusers versions.
            found = MISSING_COMPONENT.search(str(error))
            lacking = [
                component
                for component in model.components
                if found and component.class_name == found[1] and component.name not in components
            ]
            if type(error).__name__ != "SingleFileComponentError" or not lacking:
                raise
            name = lacking[0].name
            if not any((folder / name).glob("*.safetensors")):
                raise LoadFailed(
                    f"{model.source.name} holds no {name}.",
                    f"{lacking[0].class_name} is not in it, and {folder} has no weights for it.",
                    "Give --single-file-config a complete diffusers folder.",
                ) from error
            components[name] = load_component(lacking[0], folder / name, dtype)


def _denoiser(model: ModelDescription, folder: Path, common: Mapping[str, Any]) -> Any:
    import importlib

    name = model.denoisers[0]
    component = next(c for c in model.components if c.name == name)
    denoiser_class = getattr(importlib.import_module(component.library), component.class_name)
    return denoiser_class.from_single_file(
        str(model.source.path), config=str(folder), subfolder=name, **common
    )
