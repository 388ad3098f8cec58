"""torch.compile of the DiT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ditport.options import flag, setting

if TYPE_CHECKING:
    from ditport.models.description import ModelDescription


@dataclass(frozen=True)
class CompilationSettings:
    """The compile options."""

    enable_torch_compile: bool = setting(
        "--enable-torch-compile",
        default=False,
        parse=flag,
        switch=True,
        help="compile the DiT's blocks: slow first step, faster ones after it",
    )


@dataclass(frozen=True)
class CompilationPlan:
    """The components to compile."""

    components: tuple[str, ...] = ()


def plan(settings: CompilationSettings, model: ModelDescription) -> CompilationPlan:
    """The denoisers, if asked."""
    return CompilationPlan(model.denoisers if settings.enable_torch_compile else ())


def apply(plan: CompilationPlan, pipeline: Any) -> None:
    """Compile block by block where the model names its repeated blocks, else as a whole."""
    for name in plan.components:
        module = getattr(pipeline, name)
        if getattr(module, "_repeated_blocks", None):
            module.compile_repeated_blocks()
        else:
            module.compile()
