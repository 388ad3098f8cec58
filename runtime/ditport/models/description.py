"""What a model folder says of itself: its pipeline, its components and their configs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ditport.models.defaults import NO_DEFAULTS, GenerationDefaults
from ditport.models.signatures import Signature
from ditport.models.source import ModelSource

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Component:
    """One entry of model_index.json."""

    name: str
    library: str
    class_name: str


@dataclass(frozen=True)
class ModelDescription:
    """Everything that is known of a model before torch is imported."""

    source: ModelSource
    pipeline: str
    components: tuple[Component, ...]
    configs: Mapping[str, Config] = field(hash=False)
    signature: Signature | None = None  # None: a pipeline class of the model's own
    defaults: GenerationDefaults = NO_DEFAULTS
    configs_folder: Path | None = None  # of a single file: the folder that its configs are from

    @property
    def component_names(self) -> tuple[str, ...]:
        """The components that are there."""
        return tuple(component.name for component in self.components)

    @property
    def denoisers(self) -> tuple[str, ...]:
        """The components that a step runs."""
        return tuple(
            name for name in self.component_names if name.startswith(("transformer", "unet"))
        )

    def accepts(self, parameter: str) -> bool:
        """Whether the pipeline takes a call parameter. Unknown signatures take everything."""
        return self.signature is None or self.signature.accepts(parameter)
