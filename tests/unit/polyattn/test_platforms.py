"""The platform rows: every platform once, every order over rows that exist."""

from __future__ import annotations

import importlib

import pytest

from polyattn import capabilities
from polyattn.platforms import PLATFORMS, Platform, platform
from polyattn.vocabulary import Fidelity, PlatformName
from tests.unit.polyattn.machines import MACHINES, machine


def test_every_platform_has_one_row() -> None:
    assert sorted(row.name for row in PLATFORMS) == sorted(PlatformName)
    assert all(platform(name).name is name for name in PlatformName)


@pytest.mark.parametrize("row", PLATFORMS, ids=lambda row: str(row.name))
def test_the_last_order_fits_any_device_and_ends_with_torch(row: Platform) -> None:
    assert row.automatic[-1].architecture == ""
    for order in row.automatic:
        # Whatever the packages, an exact kernel of torch's own is left.
        assert "sdpa" in order.implementations
        for name in order.implementations:
            assert capabilities.row(name).fidelity is Fidelity.EXACT
            assert row.name in capabilities.row(name).needs.platforms
        assert order.why


@pytest.mark.parametrize("row", PLATFORMS, ids=lambda row: str(row.name))
def test_the_probe_module_exists(row: Platform) -> None:
    assert callable(importlib.import_module(row.probe).devices)


@pytest.mark.parametrize(
    ("architectures", "first"),
    [
        (("sm_80",), "fa3"),
        (("sm_86", "sm_89"), "fa3"),
        (("sm_90",), "fa3"),
        (("sm_100",), "sdpa"),
        (("sm_103",), "sdpa"),
        (("sm_120",), "sdpa"),
        (("sm_75",), "sdpa"),
        (("sm_80", "sm_90"), "sdpa"),  # no one order fits both
        ((), "sdpa"),
    ],
)
def test_orders_on_nvidia_devices(architectures: tuple[str, ...], first: str) -> None:
    facts = machine(PlatformName.CUDA, *architectures)
    assert platform(PlatformName.CUDA).order(facts).implementations[0] == first


def test_only_mps_serves_any_dense_request_alike() -> None:
    assert {row.name for row in PLATFORMS if row.dense_backend} == {PlatformName.MPS}


def test_the_machines_of_the_tests_cover_every_platform() -> None:
    assert {facts.platform for facts in MACHINES.values()} == set(PlatformName)
