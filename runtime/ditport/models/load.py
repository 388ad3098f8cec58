"""From a description to a pipeline in memory.

Components are loaded one by one, so that progress can be told and a single one replaced, and
handed to the pipeline class's own `from_pretrained`: the result is what
`DiffusionPipeline.from_pretrained(folder)` gives. Whatever is out of the ordinary (code of the
model's own, component classes that are in neither library) is left to diffusers entirely.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ditport.errors import LoadFailed
from ditport.generation.events import Loading, Sink
from ditport.models import deferral, lazy_packages, single_file
from ditport.models.components import dtype_argument, load_component
from ditport.models.description import Component, ModelDescription
from ditport.models.precision import PrecisionPlan

# What reading a model's files may raise when they do not fit together.
CAUSES: Final = (
    OSError,
    ValueError,
    KeyError,
    RuntimeError,
    ImportError,
    TypeError,
    AttributeError,
)


@dataclass(frozen=True)
class LoadPlan:
    """How to build the pipeline."""

    precision: PrecisionPlan
    trust_remote_code: bool = False
    replaced: tuple[tuple[str, Path], ...] = ()  # components that come from another folder
    deferred: tuple[str, ...] = ()  # see deferral and lazy_packages


def load(model: ModelDescription, plan: LoadPlan, sink: Sink) -> Any:
    """Import what the model needs and build it. Raises LoadFailed."""
    sink(Loading(None, 0, len(model.components)))
    quiet_libraries()
    deferral.defer(plan.deferred)
    if "diffusers" in plan.deferred:
        lazy_packages.install()
    try:
        return _load(model, plan, sink)
    except CAUSES as error:
        if type(error).__name__ == "OutOfMemoryError" or "allocate" in str(error):
            raise
        raise LoadFailed(
            f"{model.source.name} could not be loaded.", f"{type(error).__name__}: {error}"
        ) from error


def _load(model: ModelDescription, plan: LoadPlan, sink: Sink) -> Any:
    pipeline_class = pipeline_class_of(model)
    if model.source.kind == "file":
        return single_file.load(model, pipeline_class, plan.precision.default)
    components: dict[str, Any] = {}
    replaced = dict(plan.replaced)
    weighty = [c for c in model.components if _is_model(model, c)]
    for index, component in enumerate(weighty):
        sink(Loading(component.name, index, len(weighty)))
        folder = replaced.get(component.name, model.source.path / component.name)
        components[component.name] = load_component(
            component, folder, plan.precision.of(component.name)
        )
    return pipeline_class.from_pretrained(
        str(model.source.path),
        **components,
        **dtype_argument(plan.precision.default),
        trust_remote_code=plan.trust_remote_code,
        local_files_only=True,
    )


def pipeline_class_of(model: ModelDescription) -> Any:
    """The pipeline class, imported from its own module: diffusers' top level imports more."""
    if model.signature is None:
        return importlib.import_module("diffusers").DiffusionPipeline
    return getattr(importlib.import_module(model.signature.module), model.signature.class_name)


def _is_model(model: ModelDescription, component: Component) -> bool:
    """Whether a component has weights and a class in one of the two libraries."""
    config = model.configs.get(component.name, {})
    named = "_class_name" in config or "architectures" in config
    is_scheduler = (model.source.path / component.name / "scheduler_config.json").is_file()
    own = (model.source.path / component.name / f"{component.library}.py").is_file()
    return (
        component.library in ("diffusers", "transformers")
        and model.signature is not None
        and named
        and not is_scheduler
        and not own
        and not component.class_name.startswith("Flax")
    )


def quiet_libraries() -> None:
    """Keep the libraries' bars and advice from writing over ours; --debug leaves them on."""
    if os.environ.get("DITPORT_DEBUG"):
        return
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("DIFFUSERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
