"""`--<component>-path`: components that come from another folder than the model's."""

from __future__ import annotations

from pathlib import Path

from ditport.errors import ModelForeign, ModelMissing, NotInThisVersion, UnknownOption, UsageError
from ditport.models.description import ModelDescription
from ditport.models.folder import check_component, read_config
from ditport.models.source import HUB_ID, ModelSettings, ModelSource


def replacements(settings: ModelSettings, model: ModelDescription) -> tuple[tuple[str, Path], ...]:
    """The folders that replace components. Raises what reading a model folder raises."""
    found: dict[str, Path] = {}
    for entry in settings.component_path:
        name, equals, named = entry.partition("=")
        if not equals or not named:
            raise UsageError(f"{entry!r} in --component-path is not COMPONENT=FOLDER.")
        component = next((c for c in model.components if c.name == name), None)
        if component is None:
            raise UnknownOption(f"component of {model.source.name}:", name, model.component_names)
        if model.source.kind == "file":
            raise NotInThisVersion(
                f"--{name}-path cannot be combined with a single file.",
                "",
                "Give --model-path a diffusers folder.",
            )
        folder = Path(named).expanduser()
        if not folder.is_dir():
            raise (_not_local if HUB_ID.match(named) else _missing)(name, named)
        config = read_config(folder)
        written = config.get("_class_name", component.class_name)
        if not config or written != component.class_name:
            raise ModelForeign(
                f"{named} cannot be the {name} of {model.source.name}.",
                f"It is {written if config else 'no component folder'}, and "
                f"{component.class_name} is needed.",
            )
        check_component(ModelSource(named, "folder", folder), folder, component, config)
        found[name] = folder.resolve()
    return tuple(found.items())


def _not_local(name: str, named: str) -> NotInThisVersion:
    return NotInThisVersion(
        f"--{name}-path {named} is no folder here.",
        "Components are taken from folders only in this version.",
        f"`hf download {named} --local-dir FOLDER`, then give that folder.",
    )


def _missing(name: str, named: str) -> ModelMissing:
    return ModelMissing(f"--{name}-path {named} does not exist.")
