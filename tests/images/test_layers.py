"""Nothing of the network that built the image stays in it."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from images import bake, network
from images.engine import DockerEngine, Image
from images.platforms import ROOT, Variant
from tests.images.conftest import Python

BODY = re.compile(
    r"-----BEGIN CERTIFICATE-----\s+(.+?)\s+-----END CERTIFICATE-----", flags=re.DOTALL
)


PUBLIC = """
import certifi
for bundle in ("/etc/ssl/certs/ca-certificates.crt", certifi.where()):
    print(open(bundle).read())
"""


def certificates(bundle: str) -> set[bytes]:
    """Each certificate, decoded."""
    return {base64.b64decode("".join(body.split())) for body in BODY.findall(bundle)}


def test_no_layer_holds_a_certificate_that_debian_does_not_ship(
    engine: DockerEngine, image: Image, python: Python
):
    """The build was given this host's CA bundle, private authorities included."""
    given = dict(network.from_environment(os.environ).secrets).get("ca")
    public = certificates(
        python(
            "import pathlib; print(pathlib.Path('/etc/ssl/certs/ca-certificates.crt').read_text())"
        )
    ) | certificates(python("import certifi; print(open(certifi.where()).read())"))
    private = (certificates(given.read_text(errors="replace")) if given else set()) - public
    marks = {base64.b64encode(each)[200:260] for each in private}
    for name, content in engine.layer_files(image.reference):
        flat = content.replace(b"\n", b"") if b"CERTIFICATE" in content else b""
        assert not [mark for mark in marks if mark in flat], name
        assert not name.endswith(("run/secrets/ca", "run/secrets/pip", "run/secrets/apt")), name
        assert not name.startswith(("root/.cache/", "root/.config/pip", "var/lib/apt/lists/deb"))


@pytest.fixture
def canary() -> Iterator[str]:
    """A word that occurs nowhere; images built with it are removed afterwards."""
    word = f"canary{secrets.token_hex(8)}"
    yield word
    subprocess.run(["docker", "image", "rm", "--force", f"ditport:{word}"], check=False)


def with_canary(path: Path, text: str, word: str) -> Path:
    path.write_text(f"{text}\n# {word}\n", encoding="utf-8")
    return path


def apt_sources(base: str) -> str:
    """The base's own mirror in apt's one-line form, so that the mirror under test works."""
    show = "cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true"
    argv = ["docker", "run", "--rm", "--entrypoint", "sh", base, "-c", show]
    found = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    if lines := re.findall(r"^deb .*$", found, flags=re.MULTILINE):
        return "\n".join(lines)
    fields = dict(re.findall(r"^(URIs|Suites|Components): (\S+)", found, flags=re.MULTILINE))
    return f"deb {fields['URIs']} {fields['Suites']} {fields['Components']}"


def test_secrets_and_proxies_of_a_build_leave_no_trace(
    engine: DockerEngine, variant: Variant, tmp_path: Path, canary: str
):
    """Built anew, uncached, with secrets that carry a word; the stages that run with secrets."""
    given = dict(network.from_environment(os.environ).secrets)
    texts = {"apt": apt_sources(variant.base)}
    if "ca" in given:
        texts["ca"] = given["ca"].read_text(encoding="utf-8")
    marked = network.Network(
        secrets=tuple(
            (name, with_canary(tmp_path / name, text, canary)) for name, text in texts.items()
        ),
        proxies=(("NO_PROXY", f"{canary}.invalid"),),
    )
    definition = bake.definition(variant, bake.Source("0"), marked)
    definition["target"][variant.name] |= {"target": "builder", "tags": [f"ditport:{canary}"]}
    subprocess.run(
        bake.command(variant, fresh=True),
        input=json.dumps(definition),
        text=True,
        cwd=ROOT,
        check=True,
    )
    word = canary.encode()
    for name, content in engine.layer_files(f"ditport:{canary}"):
        # The tag itself stands in the manifest.
        assert word not in content.replace(b"ditport:" + word, b""), name
