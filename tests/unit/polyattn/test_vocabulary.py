"""Words print as their values, and every alias leads to a row."""

from __future__ import annotations

import json

import pytest

from polyattn import capabilities
from polyattn.vocabulary import ALIASES, Backend, PlatformName, Role, Source


def test_words_print_and_serialise_as_their_value() -> None:
    assert str(PlatformName.ROCM) == f"{PlatformName.ROCM}" == "rocm"
    assert json.dumps({"role": Role.CROSS}) == '{"role": "cross"}'


def test_sources_stand_strongest_first() -> None:
    assert [str(source) for source in Source] == ["force", "role", "component", "flag", "auto"]


def test_every_backend_has_a_row() -> None:
    assert {str(backend) for backend in Backend} == {str(r.backend) for r in capabilities.BUILTIN}


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_lead_to_rows(alias: str) -> None:
    backend, implementation = ALIASES[alias]
    rows = capabilities.rows_of(backend)
    assert implementation is None or implementation in {row.name for row in rows}
    assert alias not in capabilities.backend_names()
