"""How large an image is, and how long a change of our own source takes to reach it.

    python -m bench.image [--variant cpu] [--json FILE]

Size: unpacked, as the engine counts it, with every layer, over the same image untrimmed. Rebuild:
seconds of a whole build after one source file changed, everything else cached, least of three;
beside it a build in which nothing changed, which is what the engine itself takes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from images import bake
from images.engine import DockerEngine
from images.platforms import ROOT, Trim, Variant, load

# What .dockerignore lets in, and itself.
CONTEXT = (".dockerignore", "LICENSE", "README.md", "attention", "images", "pyproject.toml")
SOURCE = "runtime/ditport/__init__.py"
REPEATS = 3


@contextlib.contextmanager
def checkout() -> Iterator[Path]:
    """A copy to change, so that nobody's work is touched."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in (*CONTEXT, "runtime"):
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, root / name, copy_function=link)
            else:
                shutil.copy(ROOT / name, root / name)
        yield root


def link(source: str, target: str) -> str:
    """Wheels are large: linked where both lie on one disk."""
    if source.endswith(".whl"):
        with contextlib.suppress(OSError):
            os.link(source, target)
            return target
    return shutil.copy2(source, target)


def seconds(variant: Variant, root: Path) -> float:
    start = time.perf_counter()
    bake.build(variant, root=root)
    return time.perf_counter() - start


def rebuilds(variant: Variant) -> dict[str, float]:
    """Seconds of a build after a change, and of one without."""
    with checkout() as root:
        seconds(variant, root)
        unchanged = min(seconds(variant, root) for _ in range(REPEATS))
        changed = []
        for repeat in range(REPEATS):
            with (root / SOURCE).open("a", encoding="utf-8") as file:
                file.write(f"\n# {time.time_ns()} {repeat}\n")
            changed.append(seconds(variant, root))
    return {"unchanged_s": round(unchanged, 2), "source_only_s": round(min(changed), 2)}


def untrimmed_bytes(variant: Variant, engine: DockerEngine) -> int:
    with checkout() as root:
        plain = replace(variant, repository="ditport-bench-untrimmed", trim=Trim((), ()))
        try:
            bake.build(plain, root=root)
            return engine.image(plain.tag).size
        finally:
            remove(plain)


def remove(variant: Variant) -> None:
    tags = [variant.tag, variant.release_tag(bake.project_version())]
    subprocess.run(["docker", "image", "rm", "--force", *tags], check=False, capture_output=True)


def measure(variant: Variant) -> dict[str, Any]:
    engine = DockerEngine()
    bench = replace(variant, repository="ditport-bench")
    try:
        rebuilt = rebuilds(bench)
        image = engine.image(bench.tag)
    finally:
        remove(bench)
    untrimmed = untrimmed_bytes(variant, engine)
    return {
        "variant": variant.name,
        "unpacked_bytes": image.size,
        "untrimmed_bytes": untrimmed,
        "size_ratio": round(image.size / untrimmed, 3),
        "layers": [{"step": step, "bytes": size} for step, size in image.history if size],
        "rebuild": rebuilt,
    }


def table(found: dict[str, Any]) -> str:
    rows = [
        ("unpacked", f"{found['unpacked_bytes'] / 1e6:.0f} MB"),
        ("untrimmed", f"{found['untrimmed_bytes'] / 1e6:.0f} MB"),
        ("ratio", f"{found['size_ratio']}"),
        *(
            (f"layer: {layer['step'][:50]}", f"{layer['bytes'] / 1e6:.1f} MB")
            for layer in found["layers"]
        ),
        ("rebuild, source only", f"{found['rebuild']['source_only_s']} s"),
        ("rebuild, unchanged", f"{found['rebuild']['unchanged_s']} s"),
    ]
    return "\n".join(f"| {name} | {value} |" for name, value in [("image", "value"), *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", default="cpu")
    parser.add_argument("--json", type=Path, help="write the measurement here as well")
    options = parser.parse_args()
    # Builds talk on standard output; the measurement comes last.
    found = measure(load().variant(options.variant))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(table(found) + "\n")


if __name__ == "__main__":
    main()
