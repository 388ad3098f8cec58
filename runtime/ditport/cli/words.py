"""Spellings of sglang's command line that argparse cannot express, as those it can.

`--component-attention-backends.text_encoder fa` and `--vae-path FOLDER` name a component in the
option itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ditport.errors import nearest

DOTTED = re.compile(r"--([a-z-]+)\.([A-Za-z0-9_.]+)")
PATH = re.compile(r"--([a-z0-9][a-z0-9-]*)-path")


def rewritten(words: Sequence[str], options: Collection[str]) -> list[str]:
    """The words with both spellings replaced."""
    done: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        option, equals, value = word.partition("=")
        if not option.startswith("--") or option in options:
            done.append(word)
            continue
        target = _target(option, options)
        if target is None or not (equals or rest):
            done.append(word)
            continue
        general, component = target
        done += [general, f"{component}={value if equals else rest.pop(0)}"]
    return done


def _target(option: str, options: Collection[str]) -> tuple[str, str] | None:
    if (found := DOTTED.fullmatch(option)) and f"--{found[1]}" in options:
        return f"--{found[1]}", found[2]
    found = PATH.fullmatch(option)
    # --modle-path is a slip of the finger and no component called modle.
    slip = nearest(option, options, closeness=0.85)
    if found and "--component-path" in options and slip is None:
        return "--component-path", found[1].replace("-", "_")
    return None
