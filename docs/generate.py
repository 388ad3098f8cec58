"""Write docs/generated/ from the program itself; `--check` only says what is out of date.

python docs/generate.py [--check]
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

GENERATED = Path(__file__).parent / "generated"
COMMANDS = ("generate", "download", "models", "inspect", "probe", "backends")


def ditport(*words: str) -> str:
    """What `ditport WORDS` prints, 80 columns wide."""
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    argv = [sys.executable, "-m", "ditport", *words]
    return subprocess.run(argv, env=environment, check=True, capture_output=True, text=True).stdout


def command_line() -> str:
    """The help of every command."""
    parts = ["# Commands\n", "```text", ditport("--help").rstrip(), "```\n"]
    for command in COMMANDS:
        parts += [f"## {command}\n", "```text", ditport(command, "--help").rstrip(), "```\n"]
    return "\n".join(parts)


def support_matrix() -> str:
    """The rows of polyattn.capabilities as a table."""
    introduction = (
        "# Support matrix\n\n"
        "Generated from the rows that selection itself uses. What this version has run on: "
        "processors. Everything else is said by the column *evidence*.\n\n"
    )
    return introduction + ditport("backends", "--markdown")


def main() -> int:
    """Write or check every page."""
    check = "--check" in sys.argv[1:]
    stale = []
    for name, text in (("cli.md", command_line()), ("support-matrix.md", support_matrix())):
        path = GENERATED / name
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        stale.append(path.name)
        if not check:
            path.write_text(text, "utf-8")
    if stale:
        verb = "are out of date; `nox -s generate` writes them" if check else "written"
        sys.stdout.write(f"{', '.join(stale)} {verb}\n")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
