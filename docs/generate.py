"""Write docs/generated/ from the program itself; `--check` only says what is out of date.

python docs/generate.py [--check]
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

GENERATED = Path(__file__).parent / "generated"
COMMANDS = ("generate", "download", "models", "inspect", "probe", "backends", "bench")


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


def families() -> str:
    """The rows of polyattn.integrations.families as a table."""
    from polyattn.integrations.families import markdown

    introduction = (
        "# Model families\n\n"
        "Any diffusers model is routed: its attention is found by reading its code, and the first "
        "pass is traced for calls that are not counted. For these families the token grid, which "
        "sparse attention needs, and the sites that see text and image together are known as "
        "well. A test runs each of them, small and random, attached and not: the output is the "
        "same bit for bit. AutoencoderKLHunyuanImage is equal up to rounding only. Gemma2 (Sana, "
        "Lumina 2) caps its scores and keeps its own attention. Compiling *regional* is "
        "diffusers' `compile_repeated_blocks`. Context parallelism is not served.\n\n"
    )
    return introduction + markdown() + "\n"


def main() -> int:
    """Write or check every page."""
    check = "--check" in sys.argv[1:]
    stale = []
    pages = {
        "cli.md": command_line(),
        "support-matrix.md": support_matrix(),
        "families.md": families(),
    }
    for name, text in pages.items():
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
