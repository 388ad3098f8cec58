"""From what the user named to a ModelSource: demo, folder, file, or hub."""

from __future__ import annotations

from pathlib import Path

from ditport.errors import ModelForeign, ModelMissing, NotInThisVersion, UsageError, nearest
from ditport.generation.events import Sink
from ditport.models.source import DEMO, DEMO_FOLDER, HUB_ID, ModelSettings, ModelSource


def locate(settings: ModelSettings, sink: Sink) -> ModelSource:
    """Find the model; for a hub id this may download. Raises one of the Model... causes."""
    named = settings.model_path
    check_backend(settings)
    if named == DEMO:
        source = _demo()
    else:
        path = Path(named).expanduser()
        if path.is_dir():
            source = ModelSource(named, "folder", path.resolve())
        elif path.is_file():
            source = _file(named, path)
        elif HUB_ID.match(named):
            from ditport.models.hub import fetch  # huggingface_hub takes 0.2 s to import

            return fetch(named, settings.revision, sink)
        else:
            raise _missing(named, path)
    if settings.revision is not None:
        raise UsageError(
            f"--revision {settings.revision} has no meaning for {named}.",
            "Only Hugging Face models have revisions, and this one is on the disk.",
        )
    return source


def check_backend(settings: ModelSettings) -> None:
    """sglang's `--backend`: ours is diffusers."""
    if settings.backend not in ("auto", "diffusers"):
        raise NotInThisVersion(
            f"--backend {settings.backend} does not exist here.",
            "ditport runs diffusers pipelines.",
            "Leave the option out, or give auto or diffusers.",
        )


def _demo() -> ModelSource:
    if not DEMO_FOLDER.is_dir():
        raise ModelMissing(
            "The demo model is not part of this installation.",
            f"{DEMO_FOLDER} is not there.",
            "Give a model with --model-path.",
        )
    return ModelSource(DEMO, "demo", DEMO_FOLDER)


def _file(named: str, path: Path) -> ModelSource:
    if path.suffix != ".safetensors":
        raise ModelForeign(
            f"{named} is not a model that can be loaded.",
            f"Of single files, .safetensors is read, not {path.suffix or 'one without suffix'}.",
            "Pickled checkpoints can run code; convert it, or give a diffusers folder.",
        )
    return ModelSource(named, "file", path.resolve())


def _missing(named: str, path: Path) -> ModelMissing:
    parent = path.parent if str(path.parent) else Path()
    near = None
    if parent.is_dir():
        near = nearest(path.name, (entry.name for entry in parent.iterdir()))
    if near is None and nearest(named, [DEMO]):
        return ModelMissing(f"There is no model {named!r}.", "", f"Did you mean {DEMO}?")
    hint = f"Did you mean {parent / near}?" if near else ""
    return ModelMissing(
        f"There is no model {named!r}.",
        "It is no folder or file here, and no Hugging Face id (owner/name).",
        hint,
    )
