"""Write the image's facts file: `facts.py FILE --variant cpu ... `.

It says what the image is without importing torch: `ditport probe` compares it with the
device, and a bug report carries it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
from pathlib import Path


def digest(lock: Path) -> str:
    return f"sha256:{hashlib.sha256(lock.read_bytes()).hexdigest()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--revision", required=True)
    parser.add_argument("--torch", required=True)
    parser.add_argument("--lock", type=Path, required=True)
    options = parser.parse_args()
    facts = {
        "variant": options.variant,
        "version": options.version,
        "revision": options.revision,
        "torch": options.torch,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "lock": digest(options.lock),
    }
    options.file.parent.mkdir(parents=True, exist_ok=True)
    options.file.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
