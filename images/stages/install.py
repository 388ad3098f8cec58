"""Install a hash-pinned lock into the image's environment.

    install.py LOCK ENVIRONMENT [--torch-index URL]

torch comes first and alone: from the named build context `wheels`, where it holds the
wheel, else from PyTorch's index, since PyPI's Linux wheels are CUDA builds. Whichever it
is, the lock's hash decides whether the file is taken.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SECRETS: Final = Path("/run/secrets")
WHEELS: Final = Path("/wheels")

# Builds run where indexes may be unreachable: fail in seconds, not after a minute.
PATIENCE: Final = ("--retries", "2", "--timeout", "60")

NO_TORCH: Final = """
{requirement} could not be installed.
  seen: {source}; pip's own words stand above
  do:   one of the two
        - let the build reach {index}
          (proxies: HTTPS_PROXY; a private CA: DITPORT_BUILD_CA=FILE; an index of your own:
          extra-index-url in DITPORT_BUILD_PIP_CONF=FILE)
        - put the wheel that the lock names into images/wheels/: `nox -s build-cpu` fetches it
          with this machine's own pip, or by hand
          `pip download --no-deps --dest images/wheels "{requirement}"`
"""


@dataclass(frozen=True)
class Lock:
    """A requirements file, split into torch and the rest."""

    torch: str
    rest: str

    @property
    def torch_requirement(self) -> str:
        return self.torch.partition(" ")[0].strip()


def split(text: str) -> Lock:
    """A requirement is a line that starts in column 0, with its indented continuation."""
    blocks = re.findall(r"^[A-Za-z0-9].*\n(?:[ \t].*\n)*", text, flags=re.MULTILINE)
    torch = [block for block in blocks if block.startswith("torch==")]
    return Lock("".join(torch), "".join(block for block in blocks if block not in torch))


def pip_environment(secrets: Path) -> dict[str, str]:
    """The build's secrets as pip reads them."""
    environment = dict(os.environ)
    for secret, variable in (("ca", "PIP_CERT"), ("pip", "PIP_CONFIG_FILE")):
        path = secrets / secret
        # Compose passes an empty file where no secret is set.
        if path.is_file() and path.stat().st_size:
            environment[variable] = str(path)
    return environment


def pip_install(python: Path, requirements: str, *options: str) -> int:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(requirements)
        file.flush()
        command = [
            *(sys.executable, "-m", "pip", "--python", str(python)),
            *("--disable-pip-version-check", "--no-input", *PATIENCE),
            *("install", "--no-deps", "--require-hashes", "--only-binary", ":all:"),
            *("--progress-bar", "off", "--root-user-action", "ignore"),
            *("--requirement", file.name, *options),
        ]
        return subprocess.run(command, env=pip_environment(SECRETS), check=False).returncode


def install_torch(python: Path, lock: Lock, index: str) -> int:
    local = any(WHEELS.glob("torch-*.whl"))
    options = ("--no-index", "--find-links", str(WHEELS)) if local else ("--extra-index-url", index)
    code = pip_install(python, lock.torch, *options)
    if code:
        requirement = lock.torch_requirement
        source = "images/wheels/ holds another torch" if local else f"asked {index}"
        print(
            NO_TORCH.format(requirement=requirement, source=source, index=index),
            file=sys.stderr,
        )
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lock", type=Path)
    parser.add_argument("environment", type=Path)
    parser.add_argument("--torch-index")
    options = parser.parse_args()
    python = options.environment / "bin" / "python"
    lock = split(options.lock.read_text(encoding="utf-8"))
    if lock.torch:
        code = install_torch(python, lock, options.torch_index)
        if code:
            return code
    return pip_install(python, lock.rest)


if __name__ == "__main__":
    sys.exit(main())
