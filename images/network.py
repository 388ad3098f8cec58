"""What of this host's network a build is given: secrets as files, proxies as arguments.

A build sees the host's network but none of its settings. Proxies pass as BuildKit's predefined
arguments, which leave no trace in the image; everything else passes as secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.errors import BuildFailed

# Secret -> the variables that may name its file, first one set wins. SSL_CERT_FILE is what
# OpenSSL, pip and uv read, so a host behind an inspecting proxy has it set already.
SECRETS: Final[Mapping[str, tuple[str, ...]]] = {
    "ca": ("DITPORT_BUILD_CA", "SSL_CERT_FILE"),
    "pip": ("DITPORT_BUILD_PIP_CONF",),
    "apt": ("DITPORT_BUILD_APT_SOURCES",),
}
PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")


@dataclass(frozen=True)
class Network:
    """Files and proxies for one build."""

    secrets: tuple[tuple[str, Path], ...] = ()
    proxies: tuple[tuple[str, str], ...] = ()


def from_environment(environment: Mapping[str, str]) -> Network:
    secrets = []
    for name, variables in SECRETS.items():
        variable = next((each for each in variables if environment.get(each)), None)
        if variable is None:
            continue
        path = Path(environment[variable])
        if not path.is_file():
            raise BuildFailed(
                f"The build's secret {name!r} is not a file.",
                evidence=f"{variable}={path}",
                remedy=f"point {variable} to a file, or unset it",
            )
        secrets.append((name, path))
    proxies = [
        (name, value)
        for name in PROXIES
        if (value := environment.get(name) or environment.get(name.lower()))
    ]
    return Network(tuple(secrets), tuple(proxies))
