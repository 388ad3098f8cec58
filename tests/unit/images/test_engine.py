from __future__ import annotations

import io
import sys
import tarfile

import pytest

from images.engine import DockerEngine, Outcome, _files
from images.errors import EngineMissing, ImagesError


def test_without_the_sdk_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(EngineMissing, match=r"nox -s probe-cpu"):
        DockerEngine()


def test_without_an_engine_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("docker")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(EngineMissing, match=r"\.\./shared/engine/up"):
        DockerEngine()


def test_an_error_is_cause_evidence_and_remedy():
    error = ImagesError("It broke.", evidence="a crack", remedy="glue")
    assert str(error) == "It broke.\n  seen: a crack\n  do:   glue"
    assert str(ImagesError("It broke.")) == "It broke."


def test_the_evidence_of_a_run_is_its_last_words():
    assert Outcome(1, "out", "").evidence == "out"
    assert Outcome(1, "out", "\n".join(map(str, range(30)))).evidence.splitlines()[0] == "15"


def test_a_layer_is_read_file_by_file_and_anything_else_as_it_is():
    content = b"secret"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as layer:
        member = tarfile.TarInfo("etc/ca.pem")
        member.size = len(content)
        layer.addfile(member, io.BytesIO(content))
        folder = tarfile.TarInfo("etc")
        folder.type = tarfile.DIRTYPE
        layer.addfile(folder)
    packed.seek(0)
    assert list(_files("layer.tar", packed)) == [("etc/ca.pem", content)]
    assert list(_files("manifest.json", io.BytesIO(b"{}"))) == [("manifest.json", b"{}")]
