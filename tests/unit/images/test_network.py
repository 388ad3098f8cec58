from __future__ import annotations

from pathlib import Path

import pytest

from images.errors import BuildFailed
from images.network import Network, from_environment


def test_an_empty_environment_gives_nothing():
    assert from_environment({}) == Network()


def test_our_own_variable_wins_over_the_usual_one(tmp_path: Path):
    ours, usual = tmp_path / "ours.pem", tmp_path / "usual.pem"
    for path in (ours, usual):
        path.write_text("certificates")
    usual_only = {"SSL_CERT_FILE": str(usual)}
    assert from_environment(usual_only).secrets == (("ca", usual),)
    assert from_environment(usual_only | {"DITPORT_BUILD_CA": str(ours)}).secrets == (("ca", ours),)


def test_a_secret_that_is_no_file_is_refused(tmp_path: Path):
    with pytest.raises(BuildFailed, match=r"DITPORT_BUILD_PIP_CONF=.*missing"):
        from_environment({"DITPORT_BUILD_PIP_CONF": str(tmp_path / "missing")})


def test_proxies_are_taken_in_either_case():
    found = from_environment({"https_proxy": "http://a", "NO_PROXY": "localhost"})
    assert dict(found.proxies) == {"HTTPS_PROXY": "http://a", "NO_PROXY": "localhost"}
