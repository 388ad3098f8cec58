"""Which platform is taken, what is said of the rest, and what is installed: from fake trees."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from polyattn.facts import DeviceFacts, PackageFacts, PlatformFacts, TorchFacts
from polyattn.probe import Host, gather, static, static_facts
from polyattn.probe.host import Found
from polyattn.probe.packages import names, packages, torch_facts
from polyattn.vocabulary import PackageState, PlatformName, ProbeLevel


def install(site: Path, name: str, version: str, **files: str) -> None:
    """Metadata of a distribution as pip leaves it, and files beside it."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for path, text in files.items():
        target = site / path.replace("__", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


VERSION_FILE = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '{version}'
debug = False
cuda: Optional[str] = {cuda}
git_version = 'cf30153c4c131c8164ee7798e5022d810682e2cb'
hip: Optional[str] = {hip}
rocm: Optional[str] = {hip}
xpu: Optional[str] = None
"""


def install_torch(
    site: Path, version: str, cuda: str | None = None, hip: str | None = None
) -> None:
    install(site, "torch", version)
    (site / "torch").mkdir()
    text = VERSION_FILE.format(version=version, cuda=repr(cuda), hip=repr(hip))
    (site / "torch/version.py").write_text(text)


def host(tmp_path: Path, system: str = "Linux", machine: str = "x86_64") -> Host:
    return Host({"PATH": ""}, tmp_path / "root", system, machine, (str(tmp_path / "site"),))


H100 = Found((DeviceFacts(0, "NVIDIA H100", "sm_90"),), "580.95")
MI300X = Found((DeviceFacts(0, "AMD Instinct MI300X", "gfx942"),), "6.12")
M2 = Found((DeviceFacts(0, "Apple M2", "apple_m2"),), "15.1")
PROCESSOR = Found((DeviceFacts(0, "Intel Xeon", "x86_64"),))


def chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **found: Found) -> PlatformFacts:
    """The static facts of a machine whose probes find this."""
    everything = {"cpu": PROCESSOR, **found}
    monkeypatch.setattr(static, "find", lambda name, host: everything.get(str(name), Found()))
    return static_facts(host=host(tmp_path, "Darwin" if "mps" in found else "Linux"))


# The platform is what torch can use; what it cannot use is said.


@pytest.mark.parametrize(
    ("torch", "found", "platform"),
    [
        ({"cuda": "13.0"}, {"cuda": H100}, PlatformName.CUDA),
        ({"hip": "7.2.1"}, {"rocm": MI300X}, PlatformName.ROCM),
        ({}, {"mps": M2}, PlatformName.MPS),
        ({}, {}, PlatformName.CPU),
        # Two kinds of GPU: the one that torch was built for.
        ({"cuda": "13.0"}, {"cuda": H100, "rocm": MI300X}, PlatformName.CUDA),
        ({"hip": "7.2.1"}, {"cuda": H100, "rocm": MI300X}, PlatformName.ROCM),
    ],
)
def test_the_platform_is_what_torch_can_use(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    torch: dict[str, str],
    found: dict[str, Found],
    platform: PlatformName,
) -> None:
    install_torch(tmp_path / "site", "2.14.1", **torch)
    facts = chosen(monkeypatch, tmp_path, **found)
    assert facts.platform is platform
    expected = found.get(str(platform), PROCESSOR)
    assert (facts.devices, facts.driver) == (expected.devices, expected.driver)


def test_a_gpu_beside_a_torch_for_the_cpu_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_torch(tmp_path / "site", "2.13.0+cpu")
    facts = chosen(monkeypatch, tmp_path, cuda=H100)
    assert facts.platform is PlatformName.CPU
    assert facts.devices == PROCESSOR.devices
    assert facts.notes == (
        "NVIDIA H100 (sm_90) is present, but the installed torch 2.13.0+cpu is built for the CPU: "
        "install ditport with the cuda extra to use it",
    )


def test_a_gpu_beside_a_torch_for_another_one_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # The image with the CUDA build on an AMD machine: users lost days to that (InvokeAI 7977).
    install_torch(tmp_path / "site", "2.14.1+cu130", cuda="13.0")
    facts = chosen(monkeypatch, tmp_path, rocm=MI300X)
    assert facts.platform is PlatformName.CPU
    present, missing = facts.notes
    assert present.startswith("AMD Instinct MI300X (gfx942) is present, but the installed torch")
    assert "with the rocm extra" in present
    assert missing == "torch 2.14.1+cu130 is built for CUDA 13.0, but no such device is found"


def test_a_machine_without_torch_is_told_by_its_devices(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    facts = chosen(monkeypatch, tmp_path, cuda=H100, rocm=MI300X)
    assert facts.platform is PlatformName.ROCM  # the order of detection: mps, rocm, cuda, cpu
    assert facts.torch is None
    assert facts.notes == ("torch is not installed",)


def test_the_probes_notes_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install_torch(tmp_path / "site", "2.13.0+cpu")
    facts = chosen(monkeypatch, tmp_path, cuda=Found(notes=("NVML answers no",)))
    assert facts.notes == ("NVML answers no",)


def test_the_platform_can_be_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install_torch(tmp_path / "site", "2.14.1", cuda="13.0")
    chosen(monkeypatch, tmp_path, cuda=H100)
    facts = static_facts(host=host(tmp_path), platform=PlatformName.CPU)
    assert (facts.platform, facts.devices) == (PlatformName.CPU, PROCESSOR.devices)


def test_a_bare_tree_is_a_cpu(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    facts = static_facts(host=host(tmp_path, machine="aarch64"))
    assert facts.platform is PlatformName.CPU
    assert facts.devices == (DeviceFacts(0, "aarch64 CPU", "aarch64"),)
    assert (facts.system, facts.machine, facts.level) == ("Linux", "aarch64", ProbeLevel.STATIC)


def test_environment_and_root_are_parameters(tmp_path: Path) -> None:
    assert static_facts({}, tmp_path).devices[0].memory_bytes is None


def test_this_machine() -> None:
    facts = static_facts()
    assert facts == gather(ProbeLevel.STATIC)
    assert facts.torch is not None
    assert facts.package("torch").version == facts.torch.version
    assert PlatformFacts.from_json(facts.to_json()) == facts


# The image


@pytest.mark.parametrize(
    ("text", "variant", "notes"),
    [
        (json.dumps({"variant": "cuda12", "torch": "2.10"}), "cuda12", ()),
        ("{}", None, ("/opt/ditport/image.json does not name a variant",)),
        ("[]", None, ("/opt/ditport/image.json does not name a variant",)),
        ("nonsense", None, ("/opt/ditport/image.json does not name a variant",)),
    ],
)
def test_the_image_names_its_variant(
    tmp_path: Path, text: str, variant: str | None, notes: tuple[str, ...]
) -> None:
    file = tmp_path / "root/opt/ditport/image.json"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    install_torch(tmp_path / "site", "2.13.0+cpu")
    facts = static_facts(host=host(tmp_path))
    assert (facts.image, facts.notes) == (variant, notes)


# torch's flavour


@pytest.mark.parametrize(
    ("version", "cuda", "hip"),
    [
        ("2.13.0+cpu", None, None),
        ("2.15.0", "13.2", None),  # PyPI's own wheel carries no local version
        ("2.14.1+rocm7.2", None, "7.2.53211"),
    ],
)
def test_torch_by_its_version_file(
    tmp_path: Path, version: str, cuda: str | None, hip: str | None
) -> None:
    install_torch(tmp_path / "site", version, cuda, hip)
    assert torch_facts(host(tmp_path)) == TorchFacts(version, cuda, hip)


@pytest.mark.parametrize(
    ("version", "cuda", "hip"),
    [
        ("2.13.0+cpu", None, None),
        ("2.14.1+cu130", "13.0", None),
        ("2.9.1+cu126", "12.6", None),
        ("2.9.1+rocm6.4", None, "6.4"),
        ("2.15.0", None, None),
    ],
)
def test_torch_by_its_local_version(
    tmp_path: Path, version: str, cuda: str | None, hip: str | None
) -> None:
    install(tmp_path / "site", "torch", version)
    assert torch_facts(host(tmp_path)) == TorchFacts(version, cuda, hip)


def test_an_unreadable_version_file_is_no_end(tmp_path: Path) -> None:
    install(tmp_path / "site", "torch", "2.14.1+cu130")
    (tmp_path / "site/torch").mkdir()
    (tmp_path / "site/torch/version.py").write_bytes(b"\xff\xfe")
    assert torch_facts(host(tmp_path)) == TorchFacts("2.14.1+cu130", "13.0", None)


# Packages


def found(tmp_path: Path, name: str) -> PackageFacts:
    return next(package for package in packages(host(tmp_path)) if package.name == name)


def test_every_package_that_a_row_needs_is_looked_for(tmp_path: Path) -> None:
    listed = names()
    assert {"torch", "triton", "flash-attn", "flash-attn-4", "sglang-kernel"} <= set(listed)
    assert {"sageattention", "sageattn3", "amd-aiter"} <= set(listed)
    nothing = packages(host(tmp_path))
    assert [package.name for package in nothing] == list(listed)
    assert {package.state for package in nothing} == {PackageState.ABSENT}


def test_an_installed_package(tmp_path: Path) -> None:
    install(tmp_path / "site", "flash-attn-4", "4.0.0b36")
    assert found(tmp_path, "flash-attn-4") == PackageFacts(
        "flash-attn-4", PackageState.INSTALLED, "4.0.0b36"
    )
    assert found(tmp_path, "flash-attn").state is PackageState.ABSENT


def test_a_half_removed_package_is_absent(tmp_path: Path) -> None:
    (tmp_path / "site/sageattention-1.0.6.dist-info").mkdir(parents=True)
    assert found(tmp_path, "sageattention").state is PackageState.ABSENT


def test_the_asyncio_helper_is_not_amds(tmp_path: Path) -> None:
    install(tmp_path / "site", "aiter", "0.13.20191203", aiter____init__="")
    package = found(tmp_path, "amd-aiter")
    assert package.state is PackageState.FOREIGN
    assert package.detail is not None
    assert "aiter 0.13.20191203, the asyncio helper" in package.detail
    assert "uninstall aiter" in package.detail


def test_the_asyncio_helper_over_amds_is_told(tmp_path: Path) -> None:
    # Both are installed, and the folder `aiter` is the helper's: the last one installed won.
    install(tmp_path / "site", "amd-aiter", "0.1.7")
    install(tmp_path / "site", "aiter", "0.13.20191203", aiter____init__="")
    package = found(tmp_path, "amd-aiter")
    assert (package.state, package.version) == (PackageState.FOREIGN, "0.1.7")


def test_amds_under_its_short_name(tmp_path: Path) -> None:
    # Builds from the repository have been called `aiter`, too: then its files decide.
    install(tmp_path / "site", "aiter", "0.1.9")
    (tmp_path / "site/aiter/ops").mkdir(parents=True)
    assert found(tmp_path, "amd-aiter") == PackageFacts(
        "amd-aiter", PackageState.INSTALLED, "0.1.9"
    )


def test_defaults_of_a_host_are_this_process() -> None:
    here = Host()
    assert here.real
    assert here.environ is os.environ
    assert here.python_path == tuple(sys.path)
