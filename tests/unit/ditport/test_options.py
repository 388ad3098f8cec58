"""Option values: the same rules for text and JSON."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ditport.errors import UnknownOption, UsageError
from ditport.options import build, check_values, flag, one_of, real, setting, whole


@dataclass(frozen=True)
class Sample:
    height: int | None = setting("--height", default=None, parse=whole(1), help="")
    mode: str = setting("--mode", "--kind", default="a", parse=one_of("a", "b", c="b"), help="")
    names: tuple[str, ...] = setting("--names", default=(), parse=str, help="", many=True)


@pytest.mark.parametrize(("value", "expected"), [("7", 7), (7, 7), ("1", 1)])
def test_whole_numbers(value: object, expected: int) -> None:
    assert whole(1, 10)(value) == expected


@pytest.mark.parametrize("value", ["0", 11, "x", 1.5, True, None, ""])
def test_numbers_out_of_bounds_are_told_the_bounds(value: object) -> None:
    with pytest.raises(ValueError, match="from 1 to 10"):
        whole(1, 10)(value)


@pytest.mark.parametrize("value", ["nan", "inf", "x", True, -1])
def test_real_numbers_are_finite_and_within_bounds(value: object) -> None:
    with pytest.raises(ValueError, match="must be a number"):
        real(0)(value)


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("False", False), (True, True)])
def test_flags(value: object, expected: bool) -> None:
    assert flag(value) is expected


def test_a_flag_is_not_a_number() -> None:
    with pytest.raises(ValueError, match="true or false"):
        flag("maybe")


def test_synonyms_become_their_word() -> None:
    assert one_of("a", c="b")("A") == "a"
    assert one_of("b", c="b")("c") == "b"


def test_defaults_stay_in_the_dataclass() -> None:
    assert build(Sample, {"other": 3}) == Sample()
    assert build(Sample, {"names": ["x"], "height": 4}) == Sample(height=4, names=("x",))


def test_config_keys_may_be_flags_or_fields() -> None:
    found = check_values((Sample,), {"kind": "c", "names": "one", "height": "8"}, "f.json")
    assert found == {"mode": "b", "names": ("one",), "height": 8}


def test_null_in_a_config_is_not_given() -> None:
    assert check_values((Sample,), {"height": None}, "f.json") == {}


def test_misspelt_config_keys_name_the_nearest() -> None:
    with pytest.raises(UnknownOption, match=r"heigth.*Did you mean height"):
        check_values((Sample,), {"heigth": 3}, "f.json")


def test_wrong_config_values_name_file_and_key() -> None:
    with pytest.raises(UsageError, match=r"f\.json: height must be a whole number"):
        check_values((Sample,), {"height": "tall"}, "f.json")
