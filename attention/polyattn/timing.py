"""How fast implementations are on this machine, at given shapes, and how far from the oracle.

Times are medians of runs that alternate between the implementations, so that a busy machine
disturbs all alike. The error is of a sample of rows, because the float64 oracle of a whole video
would take hours.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from polyattn import capabilities
from polyattn.call import AttentionCall
from polyattn.capabilities import Implementation
from polyattn.facts import PlatformFacts
from polyattn.layers import adapter
from polyattn.oracle.tolerance import errors
from polyattn.probe.live import tensors
from polyattn.vocabulary import DType, Fidelity, PlatformName

SAMPLED_ROWS: Final = 64
SAMPLED_HEADS: Final = 2
FEWEST_RUNS: Final = 3


@dataclass(frozen=True)
class Shape:
    """One attention call of a model: batch, lengths, heads, head_dim."""

    name: str
    batch: int
    query_len: int
    kv_len: int
    heads: int
    head_dim: int

    def call(self, dtype: DType, device: int = 0) -> AttentionCall:
        """The call as selection sees it."""
        return AttentionCall(
            batch=self.batch,
            query_len=self.query_len,
            kv_len=self.kv_len,
            heads=self.heads,
            kv_heads=self.heads,
            head_dim=self.head_dim,
            dtype=dtype,
            device=device,
        )

    def __str__(self) -> str:
        return f"{self.batch}x{self.query_len}x{self.kv_len}x{self.heads}x{self.head_dim}"


# Self-attention of models as their configurations say (guidance as a batch where they batch it).
SHAPES: Final = (
    Shape("wan2.1-1.3b-480p-81f", 1, 32760, 32760, 12, 128),
    Shape("wan2.1-14b-720p-81f", 1, 75600, 75600, 40, 128),
    Shape("flux-1024", 1, 4608, 4608, 24, 128),
    Shape("qwen-image-1024", 1, 4352, 4352, 24, 128),
    Shape("sdxl-1024", 2, 4096, 4096, 10, 64),
    Shape("wan2.1-1.3b-cross", 1, 32760, 512, 12, 128),
    Shape("small", 1, 1024, 1024, 4, 64),
)


@dataclass(frozen=True)
class Measurement:
    """One implementation at one shape. `failure` says why there are no figures."""

    implementation: str
    fidelity: str
    shape: str
    dtype: str
    seconds: float | None = None
    teraflops: float | None = None
    share_of_peak: float | None = None
    error: float | None = None  # the largest of the sampled rows
    within_tolerance: bool | None = None
    peak_bytes: int | None = None  # on the device, beyond what the arguments take
    failure: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return dataclasses.asdict(self)


def usable_at(shape: Shape, dtype: DType, facts: PlatformFacts) -> dict[str, str | None]:
    """Every dense implementation: None where it serves the shape here, else the reason."""
    call = shape.call(dtype, facts.devices[0].index if facts.devices else 0)
    return {
        row.name: row.unmet(call, facts)
        for row in capabilities.rows()
        if row.fidelity is not Fidelity.SPARSE
    }


def measure(
    shape: Shape, dtype: DType, names: Sequence[str], facts: PlatformFacts, seconds: float
) -> list[Measurement]:
    """Time the named implementations, each for about `seconds`."""
    call = shape.call(dtype, facts.devices[0].index if facts.devices else 0)
    generator = torch.Generator().manual_seed(0)
    query, key, value, _ = tensors(call, facts.platform, generator)
    results: dict[str, Measurement] = {}
    runs: dict[str, Callable[[], Tensor]] = {}
    for name in names:
        row = capabilities.row(name)
        blank = Measurement(name, str(row.fidelity), shape.name, dtype)
        try:
            results[name] = _checked(blank, row, query, key, value)
            runs[name] = partial(adapter(name), query, key, value)
        except Exception as error:  # a kernel may raise anything; the others are still measured
            words = " ".join(str(error).split())[:300]
            failure = f"{type(error).__name__}: {words}"
            results[name] = dataclasses.replace(blank, failure=failure)
    times = _alternating(runs, seconds, query.device)
    flops = 4 * shape.batch * shape.heads * shape.query_len * shape.kv_len * shape.head_dim
    peak = matrix_peak(dtype, query.device) if times else None
    for name, taken in times.items():
        teraflops = flops / taken / 1e12
        results[name] = dataclasses.replace(
            results[name],
            seconds=taken,
            teraflops=teraflops,
            share_of_peak=teraflops / peak if peak else None,
        )
    return list(results.values())


def _checked(
    blank: Measurement, row: Implementation, query: Tensor, key: Tensor, value: Tensor
) -> Measurement:
    attend = adapter(row.name)
    gpu = query.device.type == "cuda"
    before = 0
    if gpu:
        torch.cuda.reset_peak_memory_stats(query.device)
        before = torch.cuda.memory_allocated(query.device)
    output = attend(query, key, value)
    wait(query.device)
    used = torch.cuda.max_memory_allocated(query.device) - before if gpu else None
    rows = torch.linspace(0, query.shape[1] - 1, min(SAMPLED_ROWS, query.shape[1])).long()
    heads = slice(0, min(SAMPLED_HEADS, query.shape[2]))
    error, excess = errors(
        output[:1, rows.to(output.device), heads].cpu(),
        query[:1, rows.to(query.device), heads].cpu(),
        key[:1, :, heads].cpu(),
        value[:1, :, heads].cpu(),
        fidelity=row.fidelity,
    )
    return dataclasses.replace(blank, error=error, within_tolerance=excess <= 1, peak_bytes=used)


def _alternating(
    runs: dict[str, Callable[[], Tensor]], seconds: float, device: torch.device
) -> dict[str, float]:
    taken: dict[str, list[float]] = {name: [] for name in runs}
    pending = dict(runs)
    while pending:
        for name, run in list(pending.items()):
            wait(device)
            start = time.perf_counter()
            run()
            wait(device)
            taken[name].append(time.perf_counter() - start)
            if len(taken[name]) >= FEWEST_RUNS and sum(taken[name]) >= seconds:
                del pending[name]
    return {name: statistics.median(times) for name, times in taken.items()}


def matrix_peak(dtype: DType, device: torch.device) -> float:
    """The fastest square matrix product of this dtype, in TFLOP/s."""
    size = 8192 if device.type == "cuda" else 1024
    left = torch.randn(size, size).to(device, getattr(torch, dtype))
    right = left.clone()
    best = float("inf")
    for _ in range(8):
        wait(device)
        start = time.perf_counter()
        left @ right
        wait(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best / 1e12


def wait(device: torch.device) -> None:
    """Until the device has done what it was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def default_shapes(platform: PlatformName) -> tuple[str, ...]:
    """Shapes that a machine of this platform measures in seconds."""
    if platform is PlatformName.CPU:
        return ("small",)
    return ("flux-1024", "sdxl-1024", "wan2.1-1.3b-480p-81f", "wan2.1-1.3b-cross")
