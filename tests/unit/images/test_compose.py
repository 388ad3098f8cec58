from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from images import bake, compose
from images.container import Hardening
from images.errors import Outdated
from images.platforms import load

PLATFORMS = load()
SOURCE = bake.Source("0.1.0")
FILE = yaml.safe_load(compose.text(PLATFORMS, SOURCE))
SERVICES = FILE["services"]


def test_the_written_file_is_current():
    compose.write(PLATFORMS, check=True)


def test_an_outdated_file_is_refused(tmp_path: Path):
    path = tmp_path / "compose.yaml"
    with pytest.raises(Outdated, match="nox -s generate"):
        compose.write(PLATFORMS, path, check=True)
    compose.write(PLATFORMS, path)
    compose.write(PLATFORMS, path, check=True)


def test_the_text_means_what_the_definition_says():
    assert compose.definition(PLATFORMS, SOURCE) == FILE


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_denied_what_the_image_does_not_need(name: str):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["pids_limit"] == Hardening().pids_limit
    assert not {"privileged", "pid", "ipc", "devices", "ports"} & set(service)


def test_only_the_service_that_opens_outputs_is_root_and_it_has_no_network():
    roots = [name for name, service in SERVICES.items() if service["user"].startswith("0:")]
    assert roots == ["ditport-outputs"]
    assert SERVICES["ditport-outputs"]["network_mode"] == "none"
    assert SERVICES["ditport-outputs"]["cap_add"] == ["CHOWN", "FOWNER"]


def test_the_build_passes_all_arguments_and_secrets():
    build = SERVICES["ditport"]["build"]
    assert set(build["args"]) == set(bake.arguments(PLATFORMS.variant("cpu"), SOURCE))
    assert set(build["secrets"]) == set(FILE["secrets"]) == {"ca", "pip", "apt"}
    assert (compose.ROOT / build["additional_contexts"]["wheels"]).is_dir()


def test_a_secret_without_a_variable_is_an_empty_file():
    assert FILE["secrets"]["ca"]["file"] == (
        "${DITPORT_BUILD_CA:-${SSL_CERT_FILE:-./images/empty}}"
    )
    assert (compose.ROOT / "images" / "empty").read_bytes() == b""
