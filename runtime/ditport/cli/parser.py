"""argparse without abbreviations, whose errors are ours and name the nearest option."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import NoReturn

from ditport.cli.words import rewritten
from ditport.errors import UnknownOption, UsageError


class Parser(argparse.ArgumentParser):
    """A command's parser."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(
            prog=prog,
            description=f"{description[0].upper()}{description[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse, and refuse what is left over."""
        options = self._option_string_actions
        parsed, left = self.parse_known_args(rewritten(words, options))
        if left:
            option = next((word for word in left if word.startswith("-")), None)
            if option is None:
                raise UsageError(f"Nobody asked for {left[0]!r} there.", "", "See --help.")
            raise UnknownOption("option", option.partition("=")[0], options)
        return parsed

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        found = re.fullmatch(r"argument ([^\s/:]+)[^:]*: (.*)", message, re.DOTALL)
        if found is None:
            raise UsageError(
                f"{message[0].upper()}{message[1:]}.", "", f"See `{self.prog} --help`."
            )
        option, problem = found.groups()
        if problem.startswith("expected"):
            problem = "needs a value" if "argument" in problem else problem
        raise UsageError(f"{option} {problem}.")
