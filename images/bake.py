"""From a variant to a bake file, and `docker buildx bake` on it.

The Docker SDK speaks to the legacy builder only, which knows neither secrets nor named
contexts (https://github.com/docker/docker-py/issues/2230), so builds go through the CLI.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from images.engine import REMEDY
from images.errors import BuildFailed, EngineMissing
from images.network import Network, from_environment
from images.platforms import ROOT, Variant

DOCKERFILE: Final = "images/Dockerfile"
WHEELS: Final = "images/wheels"
UNKNOWN: Final = "unknown"


@dataclass(frozen=True)
class Source:
    """Which ditport is built."""

    version: str
    revision: str = UNKNOWN
    committed: str = ""


def variant_arguments(variant: Variant) -> dict[str, str]:
    """The Dockerfile's arguments that platforms.toml decides."""
    return {
        "BASE_IMAGE": variant.base,
        "LOCK": variant.lock,
        "TORCH_INDEX": variant.torch.index,
        "TORCH_VERSION": variant.torch.version,
        "STRIP": " ".join(variant.trim.libraries),
        "TRIM": " ".join(variant.trim.patterns),
        "VARIANT": variant.name,
    }


def arguments(variant: Variant, source: Source) -> dict[str, str]:
    """All arguments of the Dockerfile."""
    return {
        **variant_arguments(variant),
        "VERSION": source.version,
        "REVISION": source.revision,
    }


def labels(variant: Variant, source: Source) -> dict[str, str]:
    """OCI's own names, and the two of ours that a registry's user asks for."""
    oci = "org.opencontainers.image"
    found = {
        f"{oci}.title": "ditport",
        f"{oci}.description": f"Diffusion runtime for {variant.summary}",
        f"{oci}.licenses": "Apache-2.0",
        f"{oci}.version": source.version,
        f"{oci}.revision": source.revision,
        f"{oci}.base.name": variant.base,
        "ditport.variant": variant.name,
        "ditport.torch": variant.torch.version,
    }
    return {**found, **({f"{oci}.created": source.committed} if source.committed else {})}


def definition(variant: Variant, source: Source, network: Network) -> dict[str, Any]:
    """The bake file, as JSON."""
    target = {
        "context": ".",
        "contexts": {"wheels": WHEELS},
        "dockerfile": DOCKERFILE,
        "target": "final",
        "platforms": [variant.platform],
        "args": {**arguments(variant, source), **dict(network.proxies)},
        "labels": labels(variant, source),
        "tags": [variant.tag, variant.release_tag(source.version)],
        "secret": [f"id={name},src={path}" for name, path in network.secrets],
        "output": ["type=docker"],
    }
    return {"target": {variant.name: target}}


def command(variant: Variant, *, fresh: bool = False) -> list[str]:
    """Reads the bake file from standard input, so that it never lies about on disk."""
    argv = ["docker", "buildx", "bake", "--file", "-", "--progress", "plain"]
    return [*argv, *(["--no-cache"] if fresh else []), variant.name]


def _git(*arguments: str) -> str:
    argv = ["git", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def project_version() -> str:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'^version = "([^"]+)"', text, flags=re.MULTILINE)
    return found.group(1) if found else UNKNOWN


def source() -> Source:
    """The checkout: a tree with changes is not the revision it started from."""
    revision = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--", "attention", "runtime", "pyproject.toml")
    return Source(
        version=project_version(),
        revision=f"{revision}-dirty" if revision and changed else revision or UNKNOWN,
        committed=_git("log", "-1", "--format=%cI"),
    )


def require_buildx() -> None:
    """Refuse early: without Buildx, `docker` only says that `bake` is no command."""
    try:
        done = subprocess.run(
            ["docker", "buildx", "version"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise EngineMissing("The docker command is not installed.", remedy=REMEDY) from error
    if done.returncode:
        raise EngineMissing(
            "Docker's Buildx is not installed.", evidence=done.stderr.strip(), remedy=REMEDY
        )


def build(variant: Variant, *, fresh: bool = False, root: Path = ROOT) -> None:
    """Build from the checkout at `root`."""
    bake_file = json.dumps(definition(variant, source(), from_environment(os.environ)))
    argv = command(variant, fresh=fresh)
    done = subprocess.run(argv, input=bake_file, text=True, cwd=root, check=False)
    if done.returncode:
        raise BuildFailed(
            f"{variant.tag} could not be built.",
            evidence=f"`{' '.join(argv)}` exited {done.returncode}; its output stands above",
            remedy="correct what the last failing step names, then run the build again",
        )
