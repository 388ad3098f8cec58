"""The Triton kernel: compiled for every promised architecture, and right under the interpreter.

Needs Triton (the dependency group `kernels`), no GPU; slow: `nox -s nightly`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TARGETS = [
    *(("cuda", capability, 32) for capability in (80, 86, 89, 90, 100, 103, 120, 121)),
    *(("hip", name, 64) for name in ("gfx90a", "gfx942", "gfx950")),
]
BINARY = {"cuda": "cubin", "hip": "hsaco"}
# Bytes of shared memory (LDS) that a block may have: what SM 8.6, 8.9 and 12.x offer, and CDNA's.
SHARED = {"cuda": 99 * 1024, "gfx90a": 64 * 1024, "gfx942": 64 * 1024, "gfx950": 160 * 1024}


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize(
    ("head_dim", "dtype", "by_slot"),
    [(64, "bf16", True), (128, "fp16", False), (256, "bf16", False)],
)
def test_compiles_ahead_of_time(
    target: tuple[str, int | str, int],
    head_dim: int,
    dtype: str,
    by_slot: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from polyattn.sparse.triton_block_sparse import block_sparse_forward, shape_of

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    constants = {**shape_of(head_dim), "OUT_BY_SLOT": by_slot}
    options = {name: constants.pop(name) for name in ("num_warps", "num_stages")}
    kinds = {
        **dict.fromkeys(("query", "key", "value"), f"*{dtype}"),
        "out": "*fp32" if by_slot else f"*{dtype}",
        "lse": "*fp32",
        **dict.fromkeys(("query_tokens", "key_tokens", "counts", "lists"), "*i32"),
        "scale": "fp32",
        **dict.fromkeys(constants, "constexpr"),
    }
    names = block_sparse_forward.arg_names
    signature = {name: kinds.get(name, "i32") for name in names}
    # As at launch: pointers and the strides of tokens of 16 values or more are multiples of 16.
    aligned = [
        index
        for index, name in enumerate(names)
        if signature[name].startswith("*") or name.startswith(("stride_q", "stride_k", "stride_v"))
    ]
    source = ASTSource(
        block_sparse_forward,
        signature,
        constexprs=constants,
        attrs={(index,): [["tt.divisibility", 16]] for index in aligned},
    )
    compiled = triton.compile(source, target=GPUTarget(*target), options=options)
    assert len(compiled.asm[BINARY[target[0]]]) > 1000
    assert compiled.metadata.shared <= SHARED[str(target[1] if target[0] == "hip" else "cuda")]


INTERPRETED = """
import torch
from polyattn.call import Grid
from polyattn.sparse import sliding_tile, triton_attention, video_sparse, vmoba

torch.manual_seed(0)
kinds = (vmoba.Selection("query_head", 2), vmoba.Selection("query_head", threshold=0.3))
for grid in (Grid(3, 5, 6, text=5), Grid(2, 5, 5, text=4, text_first=True), Grid(1, 9, 10)):
    for dtype, limit in ((torch.float32, 2e-6), (torch.float16, 4e-3)):
        tensors = torch.randn(3, 2, grid.tokens + grid.text, 2, 16).to(dtype).unbind(0)
        calls = [
            ("sliding_tile", sliding_tile, ((2, 4, 4), ((3, 3, 3), (1, 3, 1)), 0.25), {}),
            ("video_sparse", video_sparse, (2, 0.25), {"coarse": False}),
            ("video_sparse", video_sparse, (2, 0.25), {"coarse": True}),
            *(("vmoba", vmoba, ((2, 3, 4), kind, 0.25), {}) for kind in kinds),
        ]
        for name, module, how, more in calls:
            output = getattr(triton_attention, name)(*tensors, grid, *how, **more)
            expected = getattr(module, name)(*tensors, grid, *how, **more)
            error = (output.float() - expected.float()).abs().max().item()
            assert error < limit, (grid, name, dtype, error)
            print(grid, name, dtype, error)
"""


def test_computes_the_same_as_the_torch_kernels_under_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", INTERPRETED],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 30
