"""Settings are frozen dataclasses; a field that a user can set carries its Option.

The command line, a config file, a line of a prompt file and (later) a server request are all
checked by the same `parse` functions, which take text as well as JSON values. An option that
was not given stays absent, so a default lives in the dataclass field and nowhere else.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ditport.errors import UnknownOption, UsageError

Settings = TypeVar("Settings")
Parse = Callable[[object], object]

TRUE: Final = ("true", "1", "yes", "on")
FALSE: Final = ("false", "0", "no", "off")


@dataclass(frozen=True)
class Option:
    """How a field is given. `many` takes several words; `switch` needs none and may take one."""

    flags: tuple[str, ...]
    help: str
    parse: Parse
    metavar: str | None = None
    many: bool = False
    switch: bool = False
    constants: tuple[tuple[str, object], ...] = ()  # further flags, each meaning one value
    hidden: bool = False  # understood, but not advertised
    aliases: tuple[str, ...] = ()  # further keys in config files


def setting(
    *flags: str,
    default: Any,
    help: str,  # noqa: A002  # argparse's name for it
    parse: Parse,
    **option: Any,
) -> Any:  # Any: dataclasses.field is typed the same way
    """A dataclass field with its option."""
    return dataclasses.field(
        default=default, metadata={"option": Option(flags, help, parse, **option)}
    )


def options(settings: type) -> dict[str, Option]:
    """The options of a settings class by field name."""
    return {
        field.name: field.metadata["option"]
        for field in dataclasses.fields(settings)
        if "option" in field.metadata
    }


def add_options(parser: argparse.ArgumentParser, settings: type, title: str) -> None:
    """Add a settings class's argument group. Nothing has a default here, see the module."""
    group = parser.add_argument_group(title)
    for name, option in options(settings).items():
        shape: dict[str, Any] = {"type": _worded(option.parse), "metavar": option.metavar}
        if option.many:
            shape |= {"nargs": "+", "action": "extend"}
        if option.switch:
            shape |= {"nargs": "?", "const": True, "metavar": option.metavar or "true|false"}
        group.add_argument(
            *option.flags,
            dest=name,
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS if option.hidden else option.help.replace("%", "%%"),
            **shape,
        )
        for constant_flag, constant in option.constants:
            group.add_argument(
                constant_flag,
                dest=name,
                action="store_const",
                const=constant,
                default=argparse.SUPPRESS,
                help=argparse.SUPPRESS,
            )


def build(settings: type[Settings], values: Mapping[str, object]) -> Settings:
    """A settings object from the values that were given; other settings' keys are passed over."""
    known = {field.name for field in dataclasses.fields(settings)}  # type: ignore[arg-type]
    given = {name: value for name, value in values.items() if name in known}
    return settings(**{n: tuple(v) if isinstance(v, list) else v for n, v in given.items()})


def check_values(
    classes: Iterable[type], values: Mapping[str, object], where: str
) -> dict[str, object]:
    """Values of a config file or JSON line, checked as the command line would check them."""
    by_key: dict[str, tuple[str, Option]] = {}
    for settings in classes:
        for name, option in options(settings).items():
            for key in (name, *option.aliases, *(f.lstrip("-") for f in option.flags)):
                by_key[key.replace("-", "_")] = (name, option)
    checked: dict[str, object] = {}
    for key, value in values.items():
        found = by_key.get(key.replace("-", "_"))
        if found is None:
            raise UnknownOption(f"setting in {where}:", repr(key), by_key)
        if value is None:
            continue
        name, option = found
        try:
            if option.many:
                items = value if isinstance(value, (list, tuple)) else [value]
                checked[name] = tuple(option.parse(item) for item in items)
            else:
                checked[name] = option.parse(value)
        except ValueError as error:
            raise UsageError(f"{where}: {key} {error}.") from None
    return checked


def _worded(parse: Parse) -> Callable[[str], object]:
    # argparse hides the text of a ValueError, and shows that of an ArgumentTypeError.
    def convert(text: str) -> object:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


# --- parse functions: text or JSON in, value out, ValueError with words that follow a name -----


def anything(value: object) -> object:
    """Whatever a config file holds."""
    return value


def text(value: object) -> str:
    """Any string."""
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {value!r}")
    return value


def nonempty(value: object) -> str:
    """A string with something in it."""
    if not text(value).strip():
        raise ValueError("must not be empty")
    return text(value)


def whole(minimum: int, maximum: int | None = None) -> Parse:
    """A whole number within bounds."""
    bounds = f"at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"

    def parse(value: object) -> int:
        try:
            number = int(value) if isinstance(value, (str, int)) else None
        except ValueError:
            number = None
        outside = number is None or number < minimum or (maximum is not None and number > maximum)
        if number is None or outside or isinstance(value, bool):
            raise ValueError(f"must be a whole number {bounds}, not {value!r}")
        return number

    return parse


def real(minimum: float | None = None, maximum: float | None = None) -> Parse:
    """A finite number within bounds."""

    def parse(value: object) -> float:
        try:
            number = float(value) if isinstance(value, (str, int, float)) else math.nan
        except ValueError:
            number = math.nan
        low = minimum is not None and number < minimum
        high = maximum is not None and number > maximum
        if not math.isfinite(number) or low or high or isinstance(value, bool):
            if minimum is None:
                bounds = ""
            elif maximum is None:
                bounds = f" of at least {minimum:g}"
            else:
                bounds = f" from {minimum:g} to {maximum:g}"
            raise ValueError(f"must be a number{bounds}, not {value!r}")
        return number

    return parse


def flag(value: object) -> bool:
    """true or false, as words or JSON."""
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word in TRUE or word in FALSE:
        return word in TRUE
    raise ValueError(f"must be true or false, not {value!r}")


def one_of(*words: str, **renamed: str) -> Parse:
    """One of a few words; `renamed` maps further spellings to them."""

    def parse(value: object) -> str:
        word = str(value).lower()
        word = renamed.get(word, word)
        if word not in words:
            raise ValueError(f"must be one of {', '.join((*words, *renamed))}, not {value!r}")
        return word

    return parse
