"""compose.yaml from platforms.toml: one hardened service per variant.

The first variant's service is `ditport`, so that `docker compose run --rm ditport ...` is the
same sentence everywhere; another variant's is `ditport-<variant>`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from images import bake
from images.container import Hardening
from images.errors import Outdated
from images.network import SECRETS
from images.platforms import ROOT, Platforms, Variant

COMPOSE: Final = ROOT / "compose.yaml"

HEADER: Final = """\
# Written by `nox -s generate` from images/platforms.toml: change that instead.
#
#   docker compose run --rm ditport generate --prompt "a red circle moving right"
#
# builds the image where there is none and writes into ./outputs. Where PyTorch's index cannot
# be reached, run `nox -s build-cpu` first: it fetches torch's wheel another way.
#
# DITPORT_USER           who runs, and so whose the files are ("$(id -u):$(id -g)")
# DITPORT_BUILD_CA, DITPORT_BUILD_PIP_CONF, DITPORT_BUILD_APT_SOURCES
#                        files of a private CA and of mirrors, as build secrets
"""

# A folder that Docker makes for a mount is root's. This gives it to whoever owns the checkout,
# writable as /tmp is, so that the image's user can write without being root.
OPEN_OUTPUTS: Final = (
    "import os; owner = os.stat('/compose.yaml'); os.chmod('/outputs', 0o1777); "
    "os.chown('/outputs', owner.st_uid, owner.st_gid)"
)


def _hardened() -> dict[str, Any]:
    hardening = Hardening()
    return {
        "read_only": hardening.read_only,
        "cap_drop": list(hardening.cap_drop),
        "security_opt": list(hardening.security_opt),
        "tmpfs": list(hardening.tmpfs),
        "pids_limit": hardening.pids_limit,
    }


def _outputs() -> str:
    # The short form makes the folder where it is missing; `z` lets SELinux hosts share it.
    return "./outputs:/outputs:z"


def _build(variant: Variant, source: bake.Source) -> dict[str, Any]:
    return {
        "context": ".",
        "dockerfile": bake.DOCKERFILE,
        "target": "final",
        "additional_contexts": {"wheels": f"./{bake.WHEELS}"},
        "args": bake.arguments(variant, source),
        "labels": bake.labels(variant, source),
        "secrets": list(SECRETS),
    }


def _service(variant: Variant, source: bake.Source, opener: str) -> dict[str, Any]:
    return {
        "image": variant.tag,
        "build": _build(variant, source),
        "user": "${DITPORT_USER:-1000:0}",
        **_hardened(),
        "depends_on": {opener: {"condition": "service_completed_successfully"}},
        "volumes": ["models:/models", _outputs()],
    }


def _opener(variant: Variant, source: bake.Source) -> dict[str, Any]:
    return {
        "image": variant.tag,
        # Again, since Compose would else pull this service's image before it builds the other's.
        "build": _build(variant, source),
        "entrypoint": ["python", "-c", OPEN_OUTPUTS],
        "user": "0:0",
        **_hardened(),
        "cap_add": ["CHOWN", "FOWNER"],
        "network_mode": "none",
        "volumes": [
            "./compose.yaml:/compose.yaml:ro,z",
            _outputs(),
        ],
    }


def _secret(variables: tuple[str, ...]) -> str:
    """The first variable that is set, else an empty file: a secret must have one."""
    found = "./images/empty"
    for variable in reversed(variables):
        found = f"${{{variable}:-{found}}}"
    return found


def definition(platforms: Platforms, source: bake.Source) -> dict[str, Any]:
    services: dict[str, Any] = {}
    for variant in platforms.variants:
        name = platforms.repository if not services else f"{platforms.repository}-{variant.name}"
        opener = f"{name}-outputs"
        services[name] = _service(variant, source, opener)
        services[opener] = _opener(variant, source)
    return {
        "name": platforms.repository,
        "services": services,
        "volumes": {"models": {}},
        "secrets": {name: {"file": _secret(variables)} for name, variables in SECRETS.items()},
    }


def yaml(content: dict[str, Any], indent: int = 0) -> Iterator[str]:
    """Block style with JSON's quoting, which YAML takes as it is."""
    pad = "  " * indent
    for key, value in content.items():
        if isinstance(value, dict) and value:
            yield f"{pad}{key}:"
            yield from yaml(value, indent + 1)
        elif isinstance(value, list) and value:
            yield f"{pad}{key}:"
            for each in value:
                yield f"{pad}  - {json.dumps(each)}"
        else:
            yield f"{pad}{key}: {json.dumps(value)}"


def text(platforms: Platforms, source: bake.Source) -> str:
    return HEADER + "\n" + "\n".join(yaml(definition(platforms, source))) + "\n"


def write(platforms: Platforms, path: Path = COMPOSE, *, check: bool = False) -> None:
    """Write compose.yaml, or refuse one that is not current."""
    source = bake.Source(bake.project_version(), revision="${DITPORT_REVISION:-unknown}")
    wanted = text(platforms, source)
    if not check:
        path.write_text(wanted, encoding="utf-8")
    elif not path.is_file() or path.read_text(encoding="utf-8") != wanted:
        raise Outdated(
            f"{path.name} is not what images/platforms.toml gives.",
            remedy="run `nox -s generate` and commit the result",
        )
