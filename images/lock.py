"""Resolve the locks in images/locks/: every file that a build may take, by its hash."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.errors import LockFailed
from images.platforms import ROOT, Platforms, Variant

WHEELS: Final = ROOT / "images" / "wheels"
LOCKS: Final = ROOT / "images" / "locks"

HEADER: Final = "# Written by `nox -s lock`; install with --require-hashes.\n"

# What builds our wheel inside the image's build, and what runs tests/matrix beside an image.
# Both are the same for every variant: pure Python.
TOOLS: Final = {"build": ("hatchling>=1.26",), "matrix": ("pytest>=8",)}


@dataclass(frozen=True)
class Resolution:
    """One lock to be written: the arguments that differ."""

    target: Path
    sources: tuple[str, ...]
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    python: str = "3.11"

    def command(self, requirements: Path, constraints: Path) -> list[str]:
        sources = [*self.sources, *([str(requirements)] if self.requirements else [])]
        return [
            *("uv", "pip", "compile", *sources, "--constraints", str(constraints)),
            *("--python-version", self.python, "--generate-hashes", "--only-binary", ":all:"),
            *("--no-header", "--no-annotate", "--quiet", "--output-file", str(self.target)),
            *self.options,
        ]


def variant_resolution(variant: Variant) -> Resolution:
    arch = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}[variant.platform]
    local = any(WHEELS.glob("torch-*.whl"))
    where = ("--find-links", str(WHEELS)) if local else ("--extra-index-url", variant.torch.index)
    return Resolution(
        target=ROOT / variant.lock,
        sources=("pyproject.toml", "--extra", variant.extra),
        constraints=(f"torch=={variant.torch.version}",),
        options=("--python-platform", f"{arch}-manylinux_2_36", *where),
        python=variant.python,
    )


def resolutions(platforms: Platforms) -> Iterator[Resolution]:
    for variant in platforms.variants:
        yield variant_resolution(variant)
    for name, requirements in TOOLS.items():
        yield Resolution(target=LOCKS / f"{name}.txt", sources=(), requirements=requirements)


def resolve(resolution: Resolution) -> None:
    """Write one lock. Pins that still fit are kept: uv reads the present file first."""
    with tempfile.TemporaryDirectory() as folder:
        requirements, constraints = Path(folder, "requirements.in"), Path(folder, "constraints.txt")
        requirements.write_text("\n".join(resolution.requirements) + "\n", encoding="utf-8")
        constraints.write_text("\n".join(resolution.constraints) + "\n", encoding="utf-8")
        command = resolution.command(requirements, constraints)
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            raise LockFailed(
                "uv is not installed.", remedy="run `nox -s lock`, which installs it"
            ) from error
    if done.returncode:
        raise LockFailed(
            f"{resolution.target.relative_to(ROOT)} could not be resolved.",
            evidence=done.stderr.strip(),
            remedy="reach PyTorch's index, or put the pinned torch wheel into images/wheels/",
        )
    body = resolution.target.read_text(encoding="utf-8")
    resolution.target.write_text(HEADER + body.removeprefix(HEADER), encoding="utf-8")


def hashes(lock: str, distribution: str) -> frozenset[str]:
    """The sha256 digests that a lock admits for one distribution."""
    name = re.escape(distribution)
    block = re.search(rf"^{name}==.*\n(?:[ \t].*\n)*", lock, flags=re.MULTILINE)
    return frozenset(re.findall(r"sha256:([0-9a-f]{64})", block.group())) if block else frozenset()
