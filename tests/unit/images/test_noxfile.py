from __future__ import annotations

import ast
import re
import subprocess
import sys

from images.platforms import ROOT, load

NOXFILE = ROOT / "noxfile.py"


def test_it_imports_nothing_of_the_project():
    tree = ast.parse(NOXFILE.read_text(encoding="utf-8"))
    names = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name.partition(".")[0] for name in names} & {"images", "polyattn", "ditport"}


def test_every_variant_has_its_sessions_and_every_session_a_sentence():
    command = [sys.executable, "-m", "nox", "--noxfile", str(NOXFILE), "--list"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = re.findall(r"^[*-] (\S+)(?: \[.*\])? -> (.*)$", listed, flags=re.MULTILINE)
    sessions = dict(lines)
    for variant in load().variants:
        assert {f"{verb}-{variant.name}" for verb in ("build", "probe", "test")} <= set(sessions)
    assert all(text and text.count(". ") == 0 for text in sessions.values()), sessions
