"""What `ditport --help` and `ditport backends` cost over starting Python at all.

    python -m bench.cold_start [--json FILE] [--repeats N]

Aim: at most 100 ms each.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from pathlib import Path

from bench.processes import least, report

LIMIT_MS = 100
WORDS = {
    "ditport --help": ["--help"],
    "ditport --version": ["--version"],
    "ditport generate --help": ["generate", "--help"],
    "ditport backends": ["backends"],
}


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=15)
    args = parser.parse_args()
    # The installed script, as a user starts it.
    script = str(Path(sys.executable).with_name("ditport"))
    commands = {"python -c pass": [sys.executable, "-c", "pass"]}
    commands |= {name: [script, *words] for name, words in WORDS.items()}
    times = least(commands, args.repeats, os.environ)
    bare = times.pop("python -c pass")
    over = {name: (t.wall - bare.wall) * 1000 for name, t in times.items()}
    rows = [f"{'bare Python':26} {bare.wall * 1000:7.1f} ms"]
    rows += [f"{name:26} {spent:+7.1f} ms  (aim {LIMIT_MS})" for name, spent in over.items()]
    result: dict[str, object] = {
        "bare_python_ms": bare.wall * 1000,
        "over_bare_python_ms": over,
        "cpu_seconds": {name: dataclasses.asdict(t)["cpu"] for name, t in times.items()},
        "aim_ms": LIMIT_MS,
        "repeats": args.repeats,
    }
    report("cold start, least of repeats", result, "\n".join(rows), args.json)


if __name__ == "__main__":
    main()
