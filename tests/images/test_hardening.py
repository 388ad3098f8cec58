"""What a container of the image may not do, and that it works all the same."""

from __future__ import annotations

import json

import pytest

from images.container import Hardening
from images.platforms import Variant
from tests.images.conftest import Ask, Python

STATUS = """
import json, os
lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "uid": os.getuid(), "gid": os.getgid(),
    "capabilities": int(lines["CapEff"], 16), "no_new_privileges": int(lines["NoNewPrivs"]),
}))
"""


@pytest.mark.parametrize(
    ("user", "ids"), [(None, (1000, 0)), ("12345:0", (12345, 0)), ("12345:12345", (12345, 12345))]
)
def test_it_runs_as_any_user_without_capabilities(
    python: Python, user: str | None, ids: tuple[int, int]
):
    status = json.loads(python(STATUS, user=user))
    assert (status["uid"], status["gid"]) == ids
    assert status["capabilities"] == 0
    assert status["no_new_privileges"] == 1


@pytest.mark.parametrize("user", ["12345:0", "12345:12345"])
def test_an_unknown_user_has_a_name_a_home_and_a_cache(python: Python, user: str):
    code = """
import getpass, pathlib
cache = pathlib.Path.home() / "cache" / "x"
cache.mkdir(parents=True)
print(getpass.getuser(), cache)
"""
    assert python(code, user=user).split() == ["ditport", "/models/cache/x"]


def test_nothing_but_the_volume_and_tmp_can_be_written(python: Python):
    code = """
import pathlib
for folder in ("/", "/opt/ditport", "/usr", "/var", "/etc", "/models", "/tmp"):
    try:
        (pathlib.Path(folder) / "probe").write_text("")
        print(folder)
    except OSError:
        pass
"""
    assert python(code).split() == ["/models", "/tmp"]
    assert python(code, user="0:0").split() == ["/models", "/tmp"]


def test_our_own_code_cannot_be_changed_even_where_the_root_is_writable(ask: Ask):
    outcome = ask(
        "-c",
        "open('/opt/ditport/bin/ditport', 'a')",
        entrypoint="python",
        hardening=Hardening(read_only=False),
    )
    assert outcome.code != 0
    assert "Permission denied" in outcome.errors


def test_no_network_is_reached(python: Python):
    code = "import os; print(*os.listdir('/sys/class/net'))"
    assert python(code).split() == ["lo"]


def test_it_holds_no_compiler_and_no_installer(python: Python):
    code = """
import importlib.util, shutil
tools = ("cc", "gcc", "g++", "c++", "ld", "make", "git", "curl", "wget", "pip", "pip3", "uv")
print(*filter(shutil.which, tools), *filter(importlib.util.find_spec, ("pip", "pytest")))
"""
    assert python(code).split() == []


def test_no_cache_of_an_installer_is_left(python: Python):
    code = """
import pathlib
for folder in ("/root/.cache", "/var/lib/apt/lists", "/var/cache/apt", "/run/secrets", "/stages",
               "/wheels", "/source", "/tree", "/dist"):
    path = pathlib.Path(folder)
    print(*(path.rglob("*") if path.is_dir() else ()))
"""
    assert python(code, user="0:0").split() == []


def test_what_was_trimmed_is_gone_and_what_was_kept_is_there(python: Python, variant: Variant):
    code = """
import json, pathlib, sys, sysconfig
site = pathlib.Path(sysconfig.get_path("purelib"))
print(json.dumps([pattern for pattern in sys.argv[1:] if any(site.glob(pattern))]))
"""
    kept = ["torch/bin/torch_shm_manager", "torch/testing", "sympy"]
    assert json.loads(python(code, *variant.trim.patterns, *kept)) == kept
