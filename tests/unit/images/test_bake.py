from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from images import bake
from images.errors import BuildFailed, EngineMissing
from images.network import Network
from images.platforms import ROOT, load

CPU = load().variant("cpu")
SOURCE = bake.Source("0.1.0", "abc", "2026-11-30T00:00:00+00:00")
DOCKERFILE = (ROOT / bake.DOCKERFILE).read_text(encoding="utf-8")


PLAIN = Network()


def target(network: Network = PLAIN) -> dict[str, Any]:
    return bake.definition(CPU, SOURCE, network)["target"]["cpu"]


def test_the_dockerfile_declares_exactly_the_arguments_that_a_build_passes():
    declared = set(re.findall(r"^ARG (\w+)", DOCKERFILE, flags=re.MULTILINE))
    assert declared == set(bake.arguments(CPU, SOURCE))


def test_no_argument_of_the_dockerfile_has_a_default():
    assert not re.findall(r"^ARG \w+=.*", DOCKERFILE, flags=re.MULTILINE)


def test_each_path_that_the_dockerfile_mounts_or_copies_is_let_in_by_dockerignore():
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    admitted = {line[1:] for line in ignore if line.startswith("!")}
    mounted = set(re.findall(r"source=(images/\w+)", DOCKERFILE)) | {"images/locks"}
    assert mounted <= admitted


def test_the_final_stage_copies_from_stages_and_declares_no_argument():
    final = DOCKERFILE.partition("AS final")[2]
    assert "ARG" not in final
    assert "RUN" not in final
    assert re.findall(r"^COPY (?!--from)", final, flags=re.MULTILINE) == []


def test_proxies_are_arguments_and_private_files_are_secrets():
    network = Network((("ca", Path("/ca.pem")),), (("HTTPS_PROXY", "http://proxy:3128"),))
    found = target(network)
    assert found["args"]["HTTPS_PROXY"] == "http://proxy:3128"
    assert found["secret"] == ["id=ca,src=/ca.pem"]


def test_a_plain_network_adds_nothing():
    assert target()["secret"] == []
    assert target()["args"] == bake.arguments(CPU, SOURCE)


def test_tags_labels_and_the_wheels_context_follow_the_variant():
    found = target()
    assert found["tags"] == ["ditport:cpu", "ditport:0.1.0-cpu"]
    assert found["contexts"] == {"wheels": "images/wheels"}
    assert found["labels"]["org.opencontainers.image.revision"] == "abc"
    assert found["labels"]["org.opencontainers.image.created"] == SOURCE.committed
    assert found["labels"]["ditport.torch"] == CPU.torch.version


def test_a_checkout_without_git_has_no_creation_date():
    assert "org.opencontainers.image.created" not in bake.labels(CPU, bake.Source("0.1.0"))


def test_the_bake_file_comes_by_standard_input():
    argv = bake.command(CPU)
    assert argv[:5] == ["docker", "buildx", "bake", "--file", "-"]
    assert argv[-1] == "cpu"
    assert "--no-cache" in bake.command(CPU, fresh=True)


def test_the_version_is_the_projects():
    assert bake.project_version() in bake.labels(CPU, bake.source()).values()


def test_a_failed_build_names_its_command(monkeypatch: pytest.MonkeyPatch):
    def fail(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(argv, 17 if "bake" in argv else 1, "", "")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(BuildFailed, match=r"docker buildx bake .* exited 17"):
        bake.build(CPU)


def test_a_missing_docker_command_is_said(monkeypatch: pytest.MonkeyPatch):
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError("docker")

    monkeypatch.setattr(subprocess, "run", missing)
    with pytest.raises(EngineMissing, match="docker command is not installed"):
        bake.require_buildx()


def test_a_docker_without_buildx_is_said(monkeypatch: pytest.MonkeyPatch):
    def unknown(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(argv, 1, "", "'buildx' is not a docker command")

    monkeypatch.setattr(subprocess, "run", unknown)
    with pytest.raises(EngineMissing, match="not a docker command"):
        bake.require_buildx()
