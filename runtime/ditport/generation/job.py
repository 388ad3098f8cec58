"""From settings to a Job: everything decided, everything checked, nothing loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ditport.errors import UsageError
from ditport.generation import attention, checks
from ditport.generation.events import Sink
from ditport.generation.later import refuse_later
from ditport.generation.prompts import PromptLine, read_prompts
from ditport.generation.request import Request, SamplingSettings, resolve
from ditport.generation.settings import Settings
from ditport.media.formats import format_of
from ditport.media.naming import given_path, plan_paths
from ditport.media.writing import check_space, check_writable
from ditport.models import compilation, device, lora, memory, precision
from ditport.models.compilation import CompilationPlan
from ditport.models.description import ModelDescription
from ditport.models.device import DeviceSettings
from ditport.models.folder import describe
from ditport.models.load import LoadPlan
from ditport.models.locate import locate
from ditport.models.lora import LoraPlan
from ditport.models.memory import MemoryPlan
from ditport.models.replacements import replacements
from ditport.models.source import ModelSettings
from ditport.startup import startup_notes
from polyattn.facts import PlatformFacts
from polyattn.preferences import AttentionPreferences
from polyattn.probe.static import static_facts
from polyattn.vocabulary import PlatformName


@dataclass(frozen=True)
class Job:
    """A run with nothing left to decide."""

    model: ModelDescription
    requests: tuple[Request, ...]
    paths: tuple[Path, ...]  # () when nothing is to be saved
    facts: PlatformFacts
    device: str
    load: LoadPlan
    lora: LoraPlan
    memory: MemoryPlan
    compilation: CompilationPlan
    preferences: AttentionPreferences
    quality: int | None = None
    notes: tuple[str, ...] = field(default=())


def plan(settings: Settings, environ: Mapping[str, str], sink: Sink) -> Job:
    """Decide and check everything. Torch-free; a hub model may be downloaded on the way."""
    refuse_later(settings.later)
    lines = _lines(settings.sampling)
    facts = _facts(settings.device, environ)
    chosen = device.plan(settings.device, facts)
    model = described(settings.model, sink)
    # Attention comes first: a misspelt backend is likelier than an odd size.
    asked = attention.preferences(settings.attention, facts, model.component_names, environ)
    requests: list[tuple[str, Request]] = []
    if still_image(settings) and model.accepts("num_frames"):
        lines = tuple(
            replace(line, settings=replace(line.settings, num_frames=line.settings.num_frames or 1))
            for line in lines
        )
    for line in lines:
        where = f"{settings.sampling.prompt_file}, line {line.number}" if line.number else ""
        requests += [(where, r) for r in resolve(line.settings, model, line.file_name)]
    checks.first_problem(requests, model)
    every = tuple(request for _, request in requests)
    dtypes = precision.plan(settings.precision, facts, chosen, model.component_names)
    adapters = lora.plan(settings.lora, model)
    replaced = replacements(settings.model, model)
    placed = memory.plan(settings.memory, chosen, model.component_names)
    paths: tuple[Path, ...] = ()
    if settings.output.save_output:
        paths = plan_paths(settings.output, every, settings.model.model_path)
        check_writable(paths)
        check_space(paths, every)
    return Job(
        model=model,
        requests=every,
        paths=paths,
        facts=facts,
        device=chosen,
        load=LoadPlan(
            dtypes, settings.model.trust_remote_code, replaced, uncalled(settings, adapters, chosen)
        ),
        lora=adapters,
        memory=placed,
        compilation=compilation.plan(settings.compilation, model),
        preferences=asked,
        quality=settings.output.quality,
        notes=(
            *startup_notes(facts),
            *checks.vocabulary_notes(every, model),
            *dtypes.notes,
            *placed.notes,
        ),
    )


def described(settings: ModelSettings, sink: Sink) -> ModelDescription:
    """The model that the settings name."""
    source = locate(settings, sink)
    if source.kind == "file":
        from ditport.models.single_file import describe_file

        return describe_file(source, settings, sink)
    if settings.single_file_config is not None:
        raise UsageError(
            "--single-file-config goes with a .safetensors file.", f"{source.name} is none."
        )
    return describe(source, settings.trust_remote_code)


def uncalled(settings: Settings, adapters: LoraPlan, device: str) -> tuple[str, ...]:
    """The packages of which this run needs less than importing them gives.

    torch's own parts on the CPU only: there a second counts, and there it has been run. A GPU's
    attention packages may look into torch in ways that nobody has seen here.
    """
    whole_torch = settings.compilation.enable_torch_compile or device != "cpu"
    return (
        *(() if whole_torch else ("torch", "sympy")),
        "diffusers",
        *(() if adapters.loras else ("peft",)),
    )


def still_image(settings: Settings) -> bool:
    """Whether the output's name is a picture's, so that one frame is meant."""
    given = given_path(settings.output)
    return given is not None and format_of(given) in ("png", "webp", "jpeg")


def _lines(settings: SamplingSettings) -> tuple[PromptLine, ...]:
    if settings.prompt_file is None:
        if settings.prompt is None and not settings.image_path:
            raise UsageError(
                "There is nothing to generate.",
                "",
                'Give --prompt, such as --prompt "a red circle moving right".',
            )
        return (PromptLine(0, settings),)
    if settings.prompt is not None:
        raise UsageError("--prompt and --prompt-file are both given.", "", "Give one of them.")
    return read_prompts(settings.prompt_file, settings)


def _facts(settings: DeviceSettings, environ: Mapping[str, str]) -> PlatformFacts:
    on_cpu = settings.device.lower() == "cpu"
    return static_facts(environ, platform=PlatformName.CPU if on_cpu else None)
