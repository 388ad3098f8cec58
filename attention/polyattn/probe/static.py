"""The static level: what files, metadata and small tools say. torch is not imported."""

from __future__ import annotations

import importlib
import json
import os
import platform as python_platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from polyattn.facts import PlatformFacts, TorchFacts
from polyattn.platforms import PLATFORMS, platform
from polyattn.probe.host import Found, Host
from polyattn.probe.packages import packages, torch_facts
from polyattn.vocabulary import PlatformName, ProbeLevel

# Which platform is taken where several have devices. The CPU comes last: it is always there.
ORDER: Final = (PlatformName.MPS, PlatformName.ROCM, PlatformName.CUDA, PlatformName.CPU)

IMAGE_FACTS: Final = "opt/ditport/image.json"


def static_facts(
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
    *,
    host: Host | None = None,
    platform: PlatformName | None = None,
) -> PlatformFacts:
    """The facts of this machine, or of the fake tree below `root`.

    `host` replaces `environ` and `root` where more is faked. `platform` is taken instead of the
    first that torch can use, as `--device cpu` wants it.
    """
    host = host or Host(environ, root)
    torch = torch_facts(host)
    found = {row.name: find(row.name, host) for row in PLATFORMS}
    name, why_not = _choose(found, torch) if platform is None else (platform, ())
    image, image_notes = _image(host)
    return PlatformFacts(
        platform=name,
        system=host.system,
        machine=host.machine,
        python=python_platform.python_version(),
        level=ProbeLevel.STATIC,
        torch=torch,
        driver=found[name].driver,
        devices=found[name].devices,
        packages=packages(host),
        notes=(*(n for each in ORDER for n in found[each].notes), *why_not, *image_notes),
        image=image,
    )


def find(name: PlatformName, host: Host) -> Found:
    """Ask a platform's probe module for its devices."""
    probe = importlib.import_module(platform(name).probe)
    result = probe.devices(host)
    assert isinstance(result, Found)
    return result


def _choose(
    found: Mapping[PlatformName, Found], torch: TorchFacts | None
) -> tuple[PlatformName, tuple[str, ...]]:
    """The first platform with a device that torch can use, and what is there but unusable."""
    present = [name for name in ORDER if found[name].devices]
    if torch is None:
        return present[0], ("torch is not installed",)
    if PlatformName.MPS in present:
        built_for = PlatformName.MPS  # every arm64 macOS wheel holds Metal
    elif torch.hip:
        built_for = PlatformName.ROCM
    else:
        built_for = PlatformName.CUDA if torch.cuda else PlatformName.CPU
    chosen = built_for if built_for in present else PlatformName.CPU
    notes = [
        f"{_listed(found[name])} is present, but the installed torch {torch.version} is built "
        f"for {_built_for(torch)}: install ditport with the {name} extra to use it"
        for name in present
        if name not in (chosen, PlatformName.CPU)
    ]
    if built_for is not chosen:
        notes.append(
            f"torch {torch.version} is built for {_built_for(torch)}, but no such device is found"
        )
    return chosen, tuple(notes)


def _built_for(torch: TorchFacts) -> str:
    if torch.hip:
        return f"ROCm {torch.hip}"
    return f"CUDA {torch.cuda}" if torch.cuda else "the CPU"


def _listed(found: Found) -> str:
    return ", ".join(
        dict.fromkeys(f"{device.name} ({device.architecture})" for device in found.devices)
    )


def _image(host: Host) -> tuple[str | None, tuple[str, ...]]:
    """The variant of the container image, from the facts file that its build wrote."""
    text = host.read(IMAGE_FACTS)
    if text is None:
        return None, ()
    try:
        variant = json.loads(text)["variant"]
    except (ValueError, KeyError, TypeError):
        return None, (f"/{IMAGE_FACTS} does not name a variant",)
    return str(variant), ()
