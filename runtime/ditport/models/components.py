"""Loading one component by its own class."""

from __future__ import annotations

import importlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ditport.models.description import Component


def load_component(component: Component, folder: Path, dtype: str) -> Any:
    """One model of a pipeline, by its own class."""
    model_class = getattr(importlib.import_module(component.library), component.class_name)
    # diffusers reads pickles only where it must, and so does this: a folder is complete with
    # safetensors or it is loaded as it is.
    return model_class.from_pretrained(str(folder), **dtype_argument(dtype), local_files_only=True)


def dtype_argument(name: str) -> dict[str, Any]:
    """The dtype under the name that this diffusers has for it."""
    import torch

    # diffusers renamed torch_dtype in 0.42 and warns of the old name until 1.0.
    numbers = tuple(int(part) for part in version("diffusers").split(".")[:2])
    return {"dtype" if numbers >= (0, 42) else "torch_dtype": getattr(torch, name)}
