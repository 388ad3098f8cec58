"""Facts survive JSON unchanged, and a file that is not facts is refused in words."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyattn.errors import InvalidFacts
from polyattn.facts import (
    DeviceFacts,
    LiveResult,
    PackageFacts,
    PlatformFacts,
    TorchFacts,
)
from polyattn.vocabulary import PackageState, PlatformName, ProbeLevel
from tests.unit.polyattn.machines import H100, MACHINES, MI300X, machine

TEXT = st.text(max_size=12)
MAYBE_TEXT = st.none() | TEXT
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
COUNT = st.integers(0, 2**60)

FACTS = st.builds(
    PlatformFacts,
    platform=st.sampled_from(PlatformName),
    system=TEXT,
    machine=TEXT,
    python=TEXT,
    level=st.sampled_from(ProbeLevel),
    torch=st.none() | st.builds(TorchFacts, TEXT, MAYBE_TEXT, MAYBE_TEXT, TEXTS),
    driver=MAYBE_TEXT,
    devices=st.lists(st.builds(DeviceFacts, COUNT, TEXT, TEXT, st.none() | COUNT), max_size=3).map(
        tuple
    ),
    packages=st.lists(
        st.builds(PackageFacts, TEXT, st.sampled_from(PackageState), MAYBE_TEXT, MAYBE_TEXT, TEXTS),
        max_size=3,
    ).map(tuple),
    live=st.lists(
        st.builds(
            LiveResult,
            TEXT,
            COUNT,
            st.none() | st.floats(allow_nan=False, allow_infinity=False),
            MAYBE_TEXT,
        ),
        max_size=3,
    ).map(tuple),
    notes=TEXTS,
    image=MAYBE_TEXT,
)


@settings(deadline=None)
@given(FACTS)
def test_json_round_trip(facts: PlatformFacts) -> None:
    again = PlatformFacts.from_json(facts.to_json())
    assert again == facts
    assert again.fingerprint == facts.fingerprint
    assert hash(again) == hash(facts)


@pytest.mark.parametrize("name", MACHINES)
def test_machines_round_trip(name: str) -> None:
    facts = MACHINES[name]
    assert PlatformFacts.from_json(facts.to_json()) == facts


def test_any_change_changes_the_fingerprint() -> None:
    assert H100.fingerprint != dataclasses.replace(H100, driver="580.95").fingerprint
    assert H100.fingerprint != MI300X.fingerprint


def data(**changes: Any) -> dict[str, Any]:
    return {**json.loads(H100.to_json()), **changes}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "not a facts file"),
        ("root:x:0:0", "not a facts file"),
        ("[]", "not a facts file of schema 1"),
        ("{}", "not a facts file of schema 1"),
        (data(schema=2), "not a facts file of schema 1"),
        (data(platform="tpu"), "'tpu' is not a valid PlatformName"),
        (data(level="deep"), "'deep' is not a valid ProbeLevel"),
        (data(colour="red"), "colour"),
        (data(torch="2.13"), "TorchFacts must be an object, not '2.13'"),
        (data(torch={"cuda": "13.0"}), "version"),
        (data(devices={}), "devices must be a list"),
        (data(devices=[5]), "DeviceFacts must be an object"),
        (data(devices=[{"index": 0}]), "name"),
        (
            data(devices=[{"index": "0", "name": "x", "architecture": "sm_90"}]),
            "DeviceFacts.index must be int, not '0'",
        ),
        (
            data(devices=[{"index": 0, "name": "x", "architecture": 90}]),
            "DeviceFacts.architecture must be str, not 90",
        ),
        (data(packages=[{"name": "x", "state": "fine"}]), "'fine' is not a valid PackageState"),
        (data(notes="none"), "PlatformFacts.notes must be a list of texts"),
        (data(notes=[1]), "PlatformFacts.notes must be a list of texts"),
        (data(driver=580), "PlatformFacts.driver must be str"),
        (data(system=None), "PlatformFacts.system must be str, not None"),
        (data(live=[{"implementation": "sdpa", "device": True, "max_error": 0}]), "device"),
    ],
)
def test_what_is_not_a_facts_file_is_refused_in_words(content: Any, said: str) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    with pytest.raises(InvalidFacts, match=said.replace("(", r"\(")):
        PlatformFacts.from_json(text)


def test_missing_parts_are_unknown_not_wrong() -> None:
    small = {"schema": 1, "platform": "cpu", "system": "Linux", "machine": "x", "python": "3.12"}
    facts = PlatformFacts.from_json(json.dumps(small))
    assert facts.level is ProbeLevel.STATIC
    assert (facts.torch, facts.devices, facts.packages) == (None, (), ())


@pytest.mark.parametrize(
    ("architecture", "capability"),
    [
        ("sm_75", (7, 5)),
        ("sm_90", (9, 0)),
        ("sm_90a", (9, 0)),
        ("sm_100f", (10, 0)),
        ("sm_121", (12, 1)),
        ("gfx942", None),
        ("apple_m2", None),
        ("x86_64", None),
    ],
)
def test_compute_capability(architecture: str, capability: tuple[int, int] | None) -> None:
    assert DeviceFacts(0, "", architecture).compute_capability == capability


def test_one_device_of_several() -> None:
    facts = machine(PlatformName.CUDA, "sm_90", "sm_120", "sm_90")
    assert facts.architectures == ("sm_90", "sm_120")
    assert facts.for_device(1).architectures == ("sm_120",)
    assert facts.for_device(1).devices[0].index == 1
    assert facts.for_device(7).devices == ()


def test_a_package_that_no_probe_mentioned_is_absent() -> None:
    assert H100.package("flash-attn").state is PackageState.IMPORTS
    assert H100.package("xformers").state is PackageState.ABSENT
