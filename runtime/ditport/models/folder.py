"""Reading a model folder before anything heavy is imported: complete, half there, or foreign."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from ditport.errors import ModelForeign, ModelIncomplete, RemoteCodeRefused
from ditport.models.defaults import read_defaults
from ditport.models.description import Component, Config, ModelDescription
from ditport.models.signatures import package_folder, read_signature
from ditport.models.source import ModelSource
from ditport.models.weights import damage

INDEX: Final = "model_index.json"
# Component libraries that diffusers itself imports from; another name is a file of the model's own.
LIBRARIES: Final = ("diffusers", "transformers", "onnxruntime.training")
WEIGHTS: Final = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.gguf")


def describe(
    source: ModelSource, trust_remote_code: bool = False, *, weights: bool = True
) -> ModelDescription:
    """Read a diffusers folder. Raises if it is foreign, incomplete, or brings its own code.

    `weights` off: only configs are needed, the weights come from elsewhere.
    """
    folder = source.path
    index = folder / INDEX
    if not index.is_file():
        raise ModelForeign(
            f"{source.name} is not a diffusers model: {folder} has no {INDEX}.",
            looks_like(folder),
            f"Give a folder that holds {INDEX}, such as a repository named ...-Diffusers.",
        )
    data = _read_json(index)
    pipeline = data.get("_class_name")
    if isinstance(pipeline, list) and pipeline:  # [module, class]: a pipeline in the repository
        own_code, pipeline = True, str(pipeline[-1])
    else:
        own_code = False
    if not isinstance(pipeline, str):
        raise ModelForeign(f"{index} does not name a pipeline class.", "`_class_name` is missing.")
    components = tuple(
        Component(name, str(entry[0]), str(entry[1]))
        for name, entry in data.items()
        if isinstance(entry, list) and len(entry) == 2 and all(entry) and name[0] != "_"
    )
    signature = None if own_code else read_signature(pipeline)
    _check_code(source, data, pipeline, components, own_code, signature is not None)
    if trust_remote_code is False and (own := _own_code(folder, components, own_code)):
        raise RemoteCodeRefused(
            f"{source.name} runs Python code of its own.",
            f"It brings {', '.join(own)}.",
            "Read that code, and give --trust-remote-code if you trust it.",
        )
    configs = {component.name: read_config(folder / component.name) for component in components}
    if weights:
        for component in components:
            check_component(source, folder / component.name, component, configs[component.name])
        _check_leftovers(source, folder)
    return ModelDescription(
        source=source,
        pipeline=pipeline,
        components=components,
        configs=configs,
        signature=signature,
        defaults=read_defaults(folder),
    )


def looks_like(folder: Path) -> str:
    """A sentence on what a folder without an index is."""
    names = {path.name for path in folder.iterdir()}
    if not names:
        return "It is empty."
    config = _try_json(folder / "config.json")
    if {"adapter_config.json", "pytorch_lora_weights.safetensors"} & names:
        return "It looks like a LoRA; give it to --lora-path beside its base model."
    if class_name := config.get("_class_name"):
        if str(class_name) == "WanModel":
            return "It looks like an original Wan repository; its -Diffusers twin will load."
        return f"It looks like one component of a pipeline ({class_name})."
    if architectures := config.get("architectures") or config.get("model_type"):
        named = architectures[0] if isinstance(architectures, list) else architectures
        return f"It looks like a transformers model ({named})."
    if "scheduler_config.json" in names:
        return "It looks like one component of a pipeline (a scheduler)."
    inner = sorted(path.parent.name for path in folder.glob(f"*/{INDEX}"))
    if inner:
        return f"Its sub-folder {inner[0]} is a diffusers model."
    if {"transformer", "unet", "vae", "text_encoder"} & names:
        return "It has component folders, so it looks like a download that broke off early."
    single = sorted(name for name in names if name.endswith((".safetensors", ".ckpt", ".gguf")))
    if single:
        return f"It holds the single file {single[0]}; give the path of a .safetensors file itself."
    shown = ", ".join(sorted(names)[:5])
    return f"It holds {shown}{' and more' if len(names) > 5 else ''}."


def _check_code(
    source: ModelSource,
    data: dict[str, Any],
    pipeline: str,
    components: tuple[Component, ...],
    own_code: bool,
    known: bool,
) -> None:
    if not components:
        raise ModelForeign(f"{source.name} names no components in its {INDEX}.")
    if known or own_code or package_folder("diffusers") is None:
        return
    from importlib.metadata import version

    wrote = data.get("_diffusers_version")
    raise ModelForeign(
        f"{source.name} needs the pipeline class {pipeline}.",
        f"diffusers {version('diffusers')}, which is installed, has none of that name"
        + (f"; the model was written by {wrote}." if wrote else "."),
        "A newer diffusers may have it.",
    )


def _own_code(folder: Path, components: tuple[Component, ...], pipeline: bool) -> tuple[str, ...]:
    own = ["pipeline.py"] if pipeline else []
    for component in components:
        # A library may also be a pipeline package of diffusers, such as stable_diffusion.
        file = folder / component.name / f"{component.library}.py"
        if component.library not in LIBRARIES and file.is_file():
            own.append(f"{component.name}/{component.library}.py")
    return tuple(own)


def check_component(
    source: ModelSource, folder: Path, component: Component, config: Config
) -> None:
    if not folder.is_dir() or not any(folder.iterdir()):
        raise ModelIncomplete(
            f"{source.name} is not complete.",
            f"Its index lists {component.name} ({component.class_name}), and {folder} is "
            f"{'empty' if folder.is_dir() else 'not there'}.",
            _remedy(source),
        )
    for index in folder.glob("*.index.json"):
        shards = sorted(set(_read_json(index).get("weight_map", {}).values()))
        missing = [shard for shard in shards if not (folder / shard).is_file()]
        # A folder may hold several variants' indexes; one that is wholly absent was not wanted.
        if (missing and len(missing) < len(shards)) or (missing and not _weights(folder)):
            raise ModelIncomplete(
                f"{source.name} is not complete.",
                f"{component.name}/{index.name} lists {len(shards)} files, and "
                f"{len(missing)} are absent, such as {missing[0]}.",
                _remedy(source),
            )
    weighty = component.library in ("diffusers", "transformers") and "_class_name" in config
    weighty = weighty or "architectures" in config or "model_type" in config
    if weighty and (folder / "config.json").is_file() and not _weights(folder):
        raise ModelIncomplete(
            f"{source.name} is not complete.",
            f"{folder} has a config and no weights.",
            _remedy(source),
        )
    for path in _weights(folder):
        if reason := damage(path):
            raise ModelIncomplete(
                f"{source.name} is not complete.",
                f"{component.name}/{path.name} {reason}.",
                _remedy(source),
            )


def _check_leftovers(source: ModelSource, folder: Path) -> None:
    if source.kind == "hub":
        return  # the hub cache keeps unfinished blobs elsewhere, and other revisions' too
    left = next(
        iter((*folder.glob("**/*.incomplete"), *folder.glob(".cache/**/*.incomplete"))), None
    )
    if left is not None:
        raise ModelIncomplete(
            f"{source.name} is half downloaded.",
            f"{left.relative_to(folder)} is there.",
            _remedy(source),
        )


def _remedy(source: ModelSource) -> str:
    if source.kind == "hub":
        return f"`ditport download {source.name}` fetches what is missing."
    return "Download or copy it again."


def _weights(folder: Path) -> tuple[Path, ...]:
    return tuple(path for pattern in WEIGHTS for path in sorted(folder.glob(pattern)))


def read_config(folder: Path) -> Config:
    """A component's config, or {} where it has none."""
    for name in ("config.json", "scheduler_config.json", "preprocessor_config.json"):
        if (folder / name).is_file():
            return _read_json(folder / name)
    return {}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelIncomplete(f"{path} cannot be read as JSON.", f"{error}.") from None
    if not isinstance(data, dict):
        raise ModelIncomplete(f"{path} is not a JSON mapping.")
    return data


def _try_json(path: Path) -> dict[str, Any]:
    try:
        return _read_json(path)
    except ModelIncomplete:
        return {}
