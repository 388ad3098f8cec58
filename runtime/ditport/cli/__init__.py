"""The `ditport` command. One module per subcommand, imported when it is used."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ditport.errors import DitportError

COMMANDS = {
    "generate": "make a video or an image from a prompt",
    "download": "fetch a model into the cache",
    "models": "list the models in the cache",
    "inspect": "show how a file was made",
    "sta": "search and tune window masks for sliding_tile_attn",
    "probe": "show what this machine offers",
    "backends": "show which attention runs here, and why others do not",
    "bench": "measure the attention that runs here",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code. Never shows a traceback unless asked."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        with _terminable():
            return _dispatch(words)
    except (KeyboardInterrupt, Terminated) as error:
        print("ditport: interrupted", file=sys.stderr)  # noqa: T201
        number = signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
        return 128 + number
    except BrokenPipeError:
        # The reader of our output went away; nothing is left to say to anyone.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        return _failed(error, words)


class Terminated(BaseException):
    """SIGTERM, raised like Ctrl-C so that half-written files are removed."""


@contextmanager
def _terminable() -> Iterator[None]:
    def terminated(number: int, frame: object) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield  # handlers belong to the main thread; someone else runs us
        return
    before = signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())  # noqa: T201
        return 0
    if words[0] in ("-V", "--version"):
        import ditport

        print(f"ditport {ditport.__version__}")  # noqa: T201
        return 0
    command, rest = words[0], words[1:]
    if command not in COMMANDS:
        from ditport.errors import UnknownOption

        what = "option" if command.startswith("-") else "command"
        raise UnknownOption(what, command, (*COMMANDS, "--help", "--version"))
    from ditport.cli.parser import Parser

    module = importlib.import_module(f"ditport.cli.{command}")
    parser = Parser(f"ditport {command}", COMMANDS[command])
    module.configure(parser)
    code = module.run(parser.parse(rest))
    assert isinstance(code, int)
    return code


def overview() -> str:
    """What `ditport --help` prints."""
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:{width}}  {does}" for name, does in COMMANDS.items())
    return (
        "usage: ditport COMMAND [OPTIONS]\n\n"
        "Text to video and images on NVIDIA, AMD, Apple and CPU, with attention you can choose\n"
        "and explain.\n\n"
        f"commands:\n{rows}\n\n"
        "options:\n"
        "  --help     this text; `ditport COMMAND --help` tells more\n"
        "  --version  the version\n\n"
        "example:\n"
        '  ditport generate --prompt "a red circle moving right on a black background"'
    )


def _failed(error: Exception, words: list[str]) -> int:
    from ditport.errors import DitportError
    from polyattn.errors import AttentionError

    if "--debug" in words or os.environ.get("DITPORT_DEBUG"):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, DitportError):
        _tell(error, words)
        return error.exit_code
    if isinstance(error, AttentionError):
        print(f"ditport: {error}", file=sys.stderr)  # noqa: T201
        return 2
    print(  # noqa: T201
        f"ditport: {type(error).__name__}: {error}\n"
        "This is not your mistake but ditport's; --debug shows where it happened.",
        file=sys.stderr,
    )
    return 1


def _tell(error: DitportError, words: list[str]) -> None:
    if "--json" in words:
        import json

        print(json.dumps(error.to_json(), indent=2))  # noqa: T201
    print(f"ditport: {error}", file=sys.stderr)  # noqa: T201
