"""What the hub's cache holds."""

from __future__ import annotations

from dataclasses import dataclass

from ditport.errors import Refused
from ditport.models.folder import INDEX, describe
from ditport.models.source import DEMO, DEMO_FOLDER, ModelSource


@dataclass(frozen=True)
class CachedModel:
    """One revision of one model. `problem` says why it cannot be used, if it cannot."""

    name: str
    revision: str
    refs: tuple[str, ...]
    size_bytes: int
    path: str
    pipeline: str | None = None
    problem: str | None = None


def cached_models() -> tuple[CachedModel, ...]:
    """The demo, and every diffusers model in the cache, by name and revision."""
    from huggingface_hub import CacheNotFound, scan_cache_dir

    demo: list[CachedModel] = []
    if DEMO_FOLDER.is_dir():
        size = sum(path.stat().st_size for path in DEMO_FOLDER.rglob("*") if path.is_file())
        demo = [_described(CachedModel(DEMO, "", (), size, str(DEMO_FOLDER)), "demo")]
    try:
        cache = scan_cache_dir()
    except CacheNotFound:
        return tuple(demo)
    found = [
        _described(
            CachedModel(
                name=repository.repo_id,
                revision=revision.commit_hash,
                refs=tuple(sorted(revision.refs)),
                size_bytes=revision.size_on_disk,
                path=str(revision.snapshot_path),
            ),
            "hub",
        )
        for repository in cache.repos
        if repository.repo_type == "model"
        for revision in repository.revisions
        if any(file.file_name == INDEX for file in revision.files)
    ]
    return (*demo, *sorted(found, key=lambda model: (model.name, model.revision)))


def _described(model: CachedModel, kind: str) -> CachedModel:
    import dataclasses
    from pathlib import Path

    source = ModelSource(
        model.name, "demo" if kind == "demo" else "hub", Path(model.path), model.revision
    )
    try:
        pipeline = describe(source, trust_remote_code=True).pipeline
    except Refused as error:
        return dataclasses.replace(model, problem=error.evidence or error.cause)
    return dataclasses.replace(model, pipeline=pipeline)
