"""From a description to a pipeline in memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ditport.errors import LoadFailed
from ditport.generation.events import Loading, Sink
from ditport.models.description import ModelDescription
from ditport.models.precision import PrecisionPlan


@dataclass(frozen=True)
class LoadPlan:
    """How to build the pipeline."""

    precision: PrecisionPlan
    trust_remote_code: bool = False


def load(model: ModelDescription, plan: LoadPlan, sink: Sink) -> Any:
    """Import what the model needs and build it. Raises LoadFailed."""
    sink(Loading(None, 0, len(model.components)))
    _quiet_libraries()
    from diffusers import DiffusionPipeline

    try:
        return DiffusionPipeline.from_pretrained(
            str(model.source.path),
            dtype=_dtypes(plan.precision),
            trust_remote_code=plan.trust_remote_code,
            local_files_only=True,
        )
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, TypeError) as error:
        raise LoadFailed(
            f"{model.source.name} could not be loaded.", f"{type(error).__name__}: {error}"
        ) from error


def _dtypes(precision: PrecisionPlan) -> Any:
    import torch

    if not precision.components:
        return getattr(torch, precision.default)
    return {
        "default": getattr(torch, precision.default),
        **{name: getattr(torch, dtype) for name, dtype in precision.components},
    }


def _quiet_libraries() -> None:
    # Their bars and advice would write over ours; --debug leaves them on.
    if os.environ.get("DITPORT_DEBUG"):
        return
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("DIFFUSERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
