"""The stand-ins against the released packages, which are fetched but not installed. Slow tier.

Signatures are read from the wheels' source, so that no GPU library is needed. SageAttention 1
also computes: its Triton kernels run under Triton's interpreter, through our adapter.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.unit.polyattn.kernel_packages import SIGNATURES, described

pytestmark = pytest.mark.slow

# function -> (requirement, the file that defines it)
RELEASED = {
    "flash_attn.cute.flash_attn_func": (
        "flash-attn-4==4.0.0b36",
        "flash_attn/cute/interface.py",
    ),
    "sageattention.sageattn": ("sageattention==1.0.6", "sageattention/core.py"),
    "aiter.ops.mha.flash_attn_func": ("amd-aiter==0.1.7.post2.dev18", "aiter/ops/mha.py"),
}
# Not released as wheels that a CPU can read (flash-attn, flash-attn-3, sageattn3, SageAttention
# 2), or of 373 MB (sglang-kernel): their stand-ins were written from their repositories.
UNRELEASED = {
    "flash_attn.flash_attn_func",
    "flash_attn.flash_attn_varlen_func",
    "flash_attn_interface.flash_attn_func",
    "flash_attn_interface.flash_attn_varlen_func",
    "sageattention2.sageattn",
    "sageattn3.sageattn3_blackwell",
    "sgl_kernel.flash_attn.flash_attn_varlen_func",
}


def fetched(requirement: str, folder: Path) -> Path:
    """The wheel of one requirement, without what it requires."""
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*argv, "--quiet", "--dest", str(folder), requirement], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_every_stand_in_is_compared_or_known_not_to_be() -> None:
    assert set(RELEASED) | UNRELEASED == set(SIGNATURES)


@pytest.mark.parametrize("function", RELEASED)
def test_a_stand_in_has_the_released_signature(function: str, tmp_path: Path) -> None:
    requirement, path = RELEASED[function]
    with zipfile.ZipFile(fetched(requirement, tmp_path)) as wheel:
        source = wheel.read(path).decode()
    assert described(source, function.rpartition(".")[2]) == described(
        f"def f({SIGNATURES[function]}): ...", "f"
    )


COMPUTE = """
import torch
from polyattn.backends.sage1 import attend
from polyattn.oracle.tolerance import errors
from polyattn.vocabulary import Fidelity

torch.set_num_threads(1)
for head_dim, query_len, kv_len, causal, kv_heads, dtype in (
    (64, 70, 128, False, 2, torch.float16),
    (96, 64, 64, False, 2, torch.bfloat16),
    (128, 128, 128, True, 1, torch.bfloat16),
):
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, query_len, 2, head_dim, generator=generator).to(dtype)
    key, value = torch.randn(2, 1, kv_len, kv_heads, head_dim, generator=generator).to(dtype)
    before = key.clone()
    out = attend(query, key, value, None, causal, 0.2)
    if not torch.equal(key, before):
        raise SystemExit("the caller's keys were changed")
    _, excess = errors(
        out, query, key, value, causal=causal, softmax_scale=0.2, fidelity=Fidelity.LOSSY
    )
    if excess > 1:
        raise SystemExit(f"{head_dim}: {excess} times the tolerance")
print("computed")
"""


def test_sage_1_computes_under_the_interpreter(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    for requirement in ("sageattention==1.0.6", "triton==3.7.1"):
        folder = tmp_path / requirement.partition("=")[0]
        with zipfile.ZipFile(fetched(requirement, folder)) as wheel:
            wheel.extractall(packages)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(packages), "attention"]),
        "TRITON_INTERPRET": "1",
    }
    # -O: sageattn asserts that its tensors are on a GPU before anything else.
    argv = [sys.executable, "-O", "-c", COMPUTE]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout == "computed\n", done.stderr
