"""The Hugging Face hub and its cache. Endpoint, tokens, offline mode: huggingface_hub's own."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ditport.errors import (
    DiskFull,
    DitportError,
    DownloadFailed,
    ModelForeign,
    ModelGated,
    ModelMissing,
    ModelOffline,
)
from ditport.generation.events import Downloaded, Downloading, Sink
from ditport.models.folder import INDEX
from ditport.models.source import ModelSource

PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt")
NEVER: Final = (".msgpack", ".h5", ".onnx", ".onnx_data", ".xml", ".gguf", ".md", ".png", ".jpg")


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository, by its path in it."""

    name: str
    size: int


def wanted_files(files: Iterable[RemoteFile], index: dict[str, Any]) -> tuple[RemoteFile, ...]:
    """The files that loading needs: no pickles beside safetensors, no second precision."""
    listed = {name for name, entry in index.items() if isinstance(entry, list) and any(entry)}
    everything = tuple(files)
    wanted: list[RemoteFile] = []
    for file in everything:
        folder, _, base = file.name.rpartition("/")
        if base.endswith(NEVER) or base.startswith("."):
            continue
        if not folder:
            if base.endswith((".json", ".py")):
                wanted.append(file)
        elif folder.split("/")[0] in listed:
            siblings = [o.name for o in everything if o.name.rpartition("/")[0] == folder]
            safe = any(name.endswith(".safetensors") for name in siblings)
            if (base.endswith(PICKLES) and safe) or _is_variant(base, siblings):
                continue
            wanted.append(file)
    return tuple(wanted)


def _is_variant(base: str, siblings: list[str]) -> bool:
    # model.fp16.safetensors beside model.safetensors; alone it is all there is, and is wanted.
    stem, _, suffix = base.rpartition(".")
    parts = stem.split(".")
    if len(parts) < 2 or parts[-1] not in ("fp16", "bf16", "fp32", "fp8", "non_ema", "ema"):
        return False
    plain = ".".join(parts[:-1]) + "." + suffix
    return any(name.rpartition("/")[2] == plain for name in siblings)


def cached(repository: str, revision: str | None) -> ModelSource | None:
    """The model as the cache holds it, without asking anyone."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repository, INDEX, revision=revision)
    if not isinstance(found, str):
        return None
    folder = Path(found).parent
    return ModelSource(repository, "hub", folder, folder.name)


def fetch(repository: str, revision: str | None, sink: Sink) -> ModelSource:
    """The model from the cache, completed from the hub where needed and allowed."""
    from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download

    if constants.HF_HUB_OFFLINE:
        if (source := cached(repository, revision)) is None:
            raise ModelOffline(
                f"{repository} is not in the cache and offline mode is on.",
                f"HF_HUB_OFFLINE is set; the cache is {constants.HF_HUB_CACHE}.",
                f"Run `ditport download {repository}` once with a connection.",
            )
        return source
    with _causes(repository, revision, constants.ENDPOINT):
        try:
            info = HfApi().model_info(repository, revision=revision, files_metadata=True)
        except Exception as error:
            if not _unreachable(error):
                raise
            if (source := cached(repository, revision)) is not None:
                return source  # as huggingface_hub does: a cached model outlives its hub
            raise
        files = tuple(RemoteFile(s.rfilename, s.size or 0) for s in info.siblings or ())
        if not any(file.name == INDEX for file in files):
            raise ModelForeign(
                f"{repository} is not a diffusers model: it has no {INDEX}.",
                _repository_looks_like(files),
                "Look for its -Diffusers twin.",
            )
        index = json.loads(Path(hf_hub_download(repository, INDEX, revision=revision)).read_text())
        wanted = wanted_files(files, index)
        source = cached(repository, revision)
        missing = [f for f in wanted if source is None or not (source.path / f.name).exists()]
        if source is not None and not missing:
            return source
        total = sum(file.size for file in missing)
        _check_space(repository, total, Path(constants.HF_HUB_CACHE))
        progress = _progress_class(repository, total, sink)
        sink(Downloading(repository, 0, total))
        path = snapshot_download(
            repository,
            revision=revision,
            allow_patterns=[_literal(file.name) for file in wanted],
            tqdm_class=progress,
        )
    sink(Downloaded(repository, Path(path).name, total))
    return ModelSource(repository, "hub", Path(path), Path(path).name)


def fetch_configs(repository: str, sink: Sink) -> Path:
    """The configs and tokenizers of a model, without its weights."""
    from huggingface_hub import constants, snapshot_download

    if constants.HF_HUB_OFFLINE:
        if (source := cached(repository, None)) is None:
            raise ModelOffline(
                f"The configs of {repository} are not in the cache and offline mode is on.",
                "",
                "Give a folder to --single-file-config.",
            )
        return source.path
    with _causes(repository, None, constants.ENDPOINT):
        path = snapshot_download(
            repository,
            allow_patterns=["*.json", "*/*.json", "*/*.txt", "*/*.model"],
            tqdm_class=_progress_class(repository, 0, sink),
        )
    return Path(path)


def _literal(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _progress_class(repository: str, total: int, sink: Sink) -> type:
    from tqdm.auto import tqdm  # type: ignore[import-untyped]

    class Bytes(tqdm):  # type: ignore[misc]
        """Reports the bytes of a bar that counts bytes, and draws nothing."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._counts = kwargs.get("unit") == "B" and "econstruct" not in str(kwargs.get("desc"))
            kwargs.pop("name", None)
            kwargs["disable"] = True
            super().__init__(*args, **kwargs)
            self._seen = 0

        def update(self, n: float | None = 1) -> bool | None:
            if self._counts and n:
                self._seen += int(n)
                sink(Downloading(repository, min(self._seen, total), total))
            return None

    return Bytes


def _check_space(repository: str, total: int, cache: Path) -> None:
    there = next((path for path in (cache, *cache.parents) if path.exists()), None)
    if there is None:
        return
    free = shutil.disk_usage(there).free
    if total > free:
        raise DiskFull(
            f"{repository} does not fit on the disk.",
            f"It takes {total / 1e9:.1f} GB, and {there} has {free / 1e9:.1f} GB free.",
            "Free some space, or set HF_HOME to a larger disk.",
            before_loading=True,
        )


def _repository_looks_like(files: tuple[RemoteFile, ...]) -> str:
    names = [file.name for file in files]
    single = [n for n in names if "/" not in n and n.endswith((".safetensors", ".gguf"))]
    if any(name.endswith(("adapter_config.json", "_lora_weights.safetensors")) for name in names):
        return "It looks like a LoRA; give it to --lora-path beside its base model."
    if single:
        return f"It holds the single file {single[0]}."
    return f"It holds {', '.join(names[:5]) or 'nothing'}."


def _unreachable(error: BaseException) -> bool:
    # httpx, requests and their forks all derive their connection errors from OSError or name
    # them so; huggingface_hub wraps none of them.
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError):
        response = getattr(error, "response", None)
        return getattr(response, "status_code", 0) >= 500
    names = {cls.__name__ for cls in type(error).__mro__}
    transport = {"TransportError", "RequestException", "ConnectionError", "TimeoutException"}
    return bool(names & transport)


@contextmanager
def _causes(repository: str, revision: str | None, endpoint: str) -> Iterator[None]:
    """Turn what huggingface_hub raises into causes that a user can act on."""
    from huggingface_hub import errors, get_token

    page = f"{endpoint}/{repository}"
    try:
        yield
    except DitportError:
        raise
    except errors.GatedRepoError:
        missing = "no token was given" if get_token() is None else "your token has no access"
        raise ModelGated(
            f"{repository} is gated.",
            f"The hub refuses its files: {missing}.",
            f"Accept the conditions at {page}, then set HF_TOKEN or run `hf auth login`.",
        ) from None
    except errors.RevisionNotFoundError:
        raise ModelMissing(
            f"{repository} has no revision {revision!r}.", f"{page} was asked."
        ) from None
    except errors.RepositoryNotFoundError:
        token = "" if get_token() else " If it is private, set HF_TOKEN or run `hf auth login`."
        raise ModelMissing(
            f"There is no model {repository}.", f"{page} answers that it does not exist.{token}"
        ) from None
    except errors.HFValidationError as error:
        raise ModelMissing(f"{repository!r} is not a Hugging Face id.", f"{error}") from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise DiskFull(
                f"The disk filled up while {repository} was being downloaded.",
                "",
                "Free some space and try again: what arrived is kept.",
            ) from None
        if isinstance(error, errors.LocalEntryNotFoundError) or _unreachable(error):
            raise ModelOffline(
                f"{repository} is not in the cache and the hub cannot be reached.",
                f"{endpoint} was asked ({type(error).__name__}).",
                "Check the connection, HF_ENDPOINT and proxies.",
            ) from error
        if isinstance(error, (errors.HfHubHTTPError, OSError)):
            raise DownloadFailed(
                f"The download of {repository} broke off.",
                f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
                "Try again: what arrived is kept and the rest is resumed.",
            ) from error
        raise
