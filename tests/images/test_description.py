"""What the engine and the image's own files say of it."""

from __future__ import annotations

import json
import subprocess

from images.engine import Image
from images.platforms import ROOT, Variant
from images.stages.facts import digest
from tests.images.conftest import Ask, Python

CACHES = (
    "HOME",
    "HF_HOME",
    "TORCH_HOME",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
)


def test_it_runs_ditport_as_a_numeric_user_that_is_not_root(image: Image):
    assert image.entrypoint == ("ditport",)
    uid, _, gid = image.user.partition(":")
    assert int(uid) > 0
    assert gid == "0"


def test_it_stops_by_the_signal_that_python_cleans_up_on(image: Image):
    assert image.stop_signal == "SIGINT"


def test_every_cache_lies_on_the_one_volume(image: Image):
    assert image.volumes == ("/models",)
    assert {image.environment[name].split("/")[1] for name in CACHES} == {"models"}


def test_it_carries_oci_labels(image: Image, variant: Variant):
    oci = "org.opencontainers.image"
    assert image.labels[f"{oci}.title"] == "ditport"
    assert image.labels[f"{oci}.base.name"] == variant.base
    assert image.labels["ditport.variant"] == variant.name
    assert image.labels["ditport.torch"] == variant.torch.version
    assert {f"{oci}.{key}" for key in ("description", "licenses", "version", "revision")} <= set(
        image.labels
    )


def test_its_facts_file_says_what_was_built(python: Python, image: Image, variant: Variant):
    facts = json.loads(python("print(open('/opt/ditport/image.json').read())"))
    assert facts["variant"] == variant.name
    assert facts["lock"] == digest(ROOT / variant.lock)
    assert facts["revision"] == image.labels["org.opencontainers.image.revision"]
    installed = python("import importlib.metadata as m; print(m.version('torch'))").strip()
    assert facts["torch"] == installed == variant.torch.version


def test_probe_knows_the_image_it_runs_in(ask: Ask, variant: Variant):
    assert f"ditport:{variant.name}" in ask("probe").output


def test_it_keeps_its_size(image: Image, variant: Variant):
    assert image.size <= variant.max_megabytes * 1_000_000


def test_it_lists_the_licences_of_others(python: Python):
    parts = json.loads(python("print(open('/opt/ditport/licences.json').read())"))
    found = {(part["kind"], part["name"].lower()): part["licence"] for part in parts}
    assert "unknown" not in found.values()
    assert found["python", "diffusers"]
    assert found["debian", "libc6"]
    # The wheel says BSD; what it bundles says otherwise.
    assert found["python", "av"] == "BSD-3-Clause"
    assert found["bundled in av", "libx264"] == "GPL-2.0-or-later"


def test_its_health_is_asked_by_its_own_python(ask: Ask, image: Image):
    kind, program, *arguments = image.healthcheck
    assert kind == "CMD"
    assert ask(*arguments, entrypoint=program).code == 0
    # True health fails where the program cannot start.
    broken = ask(*arguments, entrypoint=program, environment={"PYTHONHOME": "/nowhere"})
    assert broken.code != 0


def test_every_entry_of_the_history_is_free_of_build_settings(image: Image):
    steps = " ".join(step for step, _ in image.history)
    for word in ("PIP_", "_PROXY", "_proxy", "http://", "https://"):
        assert word not in steps


def test_its_base_is_the_one_that_is_pinned(image: Image, variant: Variant):
    argv = ["docker", "image", "inspect", "--format", "{{json .RootFS.Layers}}"]
    layers = [
        json.loads(subprocess.run([*argv, tag], check=True, capture_output=True).stdout)
        for tag in (variant.base, image.reference)
    ]
    assert layers[1][: len(layers[0])] == layers[0]
