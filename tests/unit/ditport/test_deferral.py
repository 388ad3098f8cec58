"""Deferred modules: absent until called, real the moment they are, and nothing computes otherwise.

Each case is a process of its own, since importing cannot be undone.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


GENERATE = """
import hashlib, sys
from ditport.generation.events import ignore
from ditport.models.folder import describe
from ditport.models.load import LoadPlan, load
from ditport.models.precision import PrecisionPlan
from ditport.models.source import ModelSource
from pathlib import Path

model = describe(ModelSource("m", "folder", Path(sys.argv[1])))
deferred = tuple(sys.argv[2].split(",")) if sys.argv[2] else ()
pipeline = load(model, LoadPlan(PrecisionPlan("float32"), deferred=deferred), ignore)
import torch
made = pipeline("a red circle", height=32, width=32, num_frames=5, num_inference_steps=2,
                generator=torch.Generator().manual_seed(1)).frames
from ditport.models.deferral import Deferred
print(hashlib.sha256(made.tobytes()).hexdigest())
real = {n for n, m in sys.modules.items() if not isinstance(m, Deferred)}
print(sorted(n for n in real if n.startswith("diffusers.models.transformers.t5_film")))
print(sorted(real & {"torch._dynamo", "sympy", "peft", "torch.distributed.tensor"}))
"""


@pytest.mark.parametrize(
    ("device", "compiled", "expected"),
    [
        ("cpu", False, ("torch", "sympy", "diffusers", "peft")),
        ("cpu", True, ("diffusers", "peft")),
        ("cuda", False, ("diffusers", "peft")),
        ("mps", False, ("diffusers", "peft")),
    ],
)
def test_torch_itself_is_whole_wherever_it_was_not_tried_otherwise(
    device: str, compiled: bool, expected: tuple[str, ...]
) -> None:
    from ditport.generation.job import Settings, uncalled
    from ditport.models.compilation import CompilationSettings
    from ditport.models.lora import LoraPlan

    settings = Settings(compilation=CompilationSettings(enable_torch_compile=compiled))
    assert uncalled(settings, LoraPlan(()), device) == expected


def test_the_same_bytes_without_the_modules(small_wan: Path) -> None:
    plain, everything, _ = run(GENERATE, str(small_wan), "").splitlines()
    lean, nothing, loaded = run(GENERATE, str(small_wan), "torch,sympy,peft,diffusers").splitlines()
    assert lean == plain
    assert loaded == nothing == "[]"
    assert everything != nothing  # else the test would not see a difference


LAZY = """
from ditport.models import lazy_packages
lazy_packages.install()
import diffusers.models.transformers as package
assert type(package).__name__ == "LazyPackage"
from diffusers.models.transformers import WanTransformer3DModel
from diffusers import WanTransformer3DModel as again
assert WanTransformer3DModel is again
assert WanTransformer3DModel.__module__ == "diffusers.models.transformers.transformer_wan"
from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel
assert package.FluxTransformer2DModel is FluxTransformer2DModel
assert "T5FilmDecoder" in dir(package)
assert not hasattr(package, "NoSuchModel")
print("lazy")
"""


def test_lazy_packages_give_the_same_names() -> None:
    assert run(LAZY) == "lazy\n"


@pytest.mark.parametrize(
    ("source", "origins"),
    [
        ("from .a import B, C\n", {"B": "a", "C": "a"}),
        ("from ..x import y\nif y():\n    from .a import B\n", {"B": "a"}),
        ('"""Words."""\n', {}),
        ("from .a import B as C\n", None),
        ("from .a import *\n", None),
        ("from . import a\n", None),
        ("import os\n", None),
        ("X = 1\n", None),
        ("if y():\n    from .a import B\nelse:\n    B = None\n", None),
    ],
)
def test_only_lists_of_imports_are_made_lazy(source: str, origins: dict[str, str] | None) -> None:
    from ditport.models.lazy_packages import read_origins

    assert read_origins(source) == origins


AFTERWARDS = """
import sys
import torch
from ditport.models import deferral
deferral.defer(("torch", "sympy", "peft"))
from diffusers.utils.torch_utils import is_compiled_module
from diffusers.models.attention import BasicTransformerBlock  # marked by allow_in_graph
linear = torch.nn.Linear(2, 2)
assert is_compiled_module(linear) is False
assert isinstance(sys.modules["torch._dynamo"], deferral.Deferred)

def double(x):
    return x * 2

compiled = torch.compile(double, backend="eager")
assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
assert not isinstance(sys.modules["torch._dynamo"], deferral.Deferred)
assert torch._dynamo is sys.modules["torch._dynamo"]
assert is_compiled_module(torch.compile(linear, backend="eager")) is True
import torch._dynamo.config, peft
assert torch._dynamo.config is sys.modules["torch._dynamo.config"]
assert peft.LoraConfig(r=2).r == 2
from torch.distributed.tensor import DTensor
assert DTensor.__module__ == "torch.distributed.tensor"
print("real")
"""


def test_the_real_modules_come_when_called() -> None:
    assert run(AFTERWARDS) == "real\n"


SUBMODULE = """
import sys
import torch
from ditport.models import deferral
deferral.defer(("torch",))
import torch._dynamo.config  # not one of the deferred: the package becomes real, once
assert not isinstance(sys.modules["torch._dynamo"], deferral.Deferred)
assert torch._dynamo.config is sys.modules["torch._dynamo.config"]
import torch._dynamo.utils as utils
assert utils.config is torch._dynamo.config
from importlib.util import find_spec
assert find_spec("torch._dynamo").origin.endswith("__init__.py")
print("once")
"""


def test_another_submodule_makes_the_package_real_once() -> None:
    assert run(SUBMODULE) == "once\n"


GUARDS = """
import pytest, torch
from ditport.models import deferral
deferral.defer(("torch", "sympy"))
from torch.fx.experimental.symbolic_shapes import (
    expect_true, guard_or_false, is_nested_int, sym_and, sym_eq, sym_or)
assert (expect_true(True), guard_or_false(False)) == (True, False)
assert (sym_and(True, False), sym_or(True, False), sym_and(True)) == (False, True, True)
assert (sym_eq((1, 2), [1, 2]), sym_eq((1,), (2,)), sym_eq((1,), (1, 1))) == (True, False, False)
assert is_nested_int(3) is False
torch._check(True)
with pytest.raises(RuntimeError, match="told"):
    torch._check(False, lambda: "told")
import sys
from sympy import Basic
assert not isinstance(3, Basic)
assert isinstance(sys.modules["sympy"], deferral.Deferred)
with pytest.raises(AssertionError):
    guard_or_false("neither")  # the real one's own complaint
assert not isinstance(sys.modules["sympy"], deferral.Deferred)
import sympy
assert isinstance(sympy.Integer(3), Basic)  # the stand-in knows the real instances
print("asked")
"""


def test_plain_questions_need_no_compiler() -> None:
    assert run(GUARDS) == "asked\n"


@pytest.mark.parametrize("packages", ["()", "('peft',)"])
def test_nothing_else_is_deferred(packages: str) -> None:
    program = (
        "import sys, torch; from ditport.models import deferral; "
        f"deferral.defer({packages}); "
        "print([n for n, m in sys.modules.items() if isinstance(m, deferral.Deferred)])"
    )
    names = run(program)
    assert "torch" not in names
    assert ("peft" in names) == ("peft" in packages)
