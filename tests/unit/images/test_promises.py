from __future__ import annotations

import json
from dataclasses import replace

import pytest

from images.engine import Outcome
from images.errors import ImageMissing, PromiseBroken
from images.platforms import load
from images.promises import FACTS, Findings, broken, probe
from tests.unit.images.fake_engine import IMAGE, FakeEngine

CPU = load().variant("cpu")
FOUND = {"variant": "cpu", "torch": CPU.torch.version, "python": f"{CPU.python}.2"}
SUPPORT = {"implementations": [{"backend": "torch_sdpa", "usable": True}]}
FINDINGS = Findings(IMAGE, FOUND, SUPPORT, "cpu here")


def engine(**outcomes: Outcome) -> FakeEngine:
    answers = {
        FACTS: Outcome(0, json.dumps(FOUND), ""),
        "backends": Outcome(0, json.dumps(SUPPORT), ""),
        "probe": Outcome(0, "cpu here", ""),
    }
    return FakeEngine(answers | outcomes)


def test_an_image_that_keeps_its_promises_is_described():
    text = probe(CPU, engine())
    assert "1137 MB" in text
    assert "torch_sdpa usable" in text
    assert "cpu here" in text


def test_each_broken_promise_is_a_sentence():
    findings = Findings(
        replace(IMAGE, size=CPU.max_megabytes * 1_000_000 + 10_000_000),
        {"variant": "cuda", "torch": "2.13.0", "python": "3.12.1"},
        {"implementations": [{"backend": "torch_sdpa", "usable": False}]},
        "",
    )
    wrong = broken(CPU, findings)
    assert len(wrong) == 5
    assert "pinned: '2.13.0+cpu'" in wrong[1]
    assert "torch_sdpa is promised and not usable" in wrong[3]
    assert broken(CPU, FINDINGS) == ()


def test_a_broken_promise_ends_the_probe():
    no_backends = Outcome(0, json.dumps({"implementations": []}), "")
    with pytest.raises(PromiseBroken, match="torch_sdpa is promised"):
        probe(CPU, engine(backends=no_backends))


def test_a_command_that_fails_in_the_image_shows_its_last_words():
    with pytest.raises(PromiseBroken, match="ImportError: libfoo"):
        probe(CPU, engine(backends=Outcome(1, "", "Traceback\nImportError: libfoo")))


def test_the_image_is_asked_hardened_and_as_an_unknown_user():
    asked = engine()
    probe(CPU, asked)
    assert {container.user for container in asked.ran} == {"12345:0"}
    assert all(container.sdk_arguments()["read_only"] for container in asked.ran)


def test_a_missing_image_is_the_engines_error():
    with pytest.raises(ImageMissing):
        probe(CPU, FakeEngine(images={}))
