"""Facts of machines that the tests stand on, and one torch thread."""

from __future__ import annotations

import pytest
import torch

from polyattn.facts import PlatformFacts
from polyattn.vocabulary import PlatformName


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def cpu() -> PlatformFacts:
    """A plain x86-64 machine without an accelerator."""
    return PlatformFacts(PlatformName.CPU, "Linux", "x86_64", "3.11.7")
