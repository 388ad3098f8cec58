"""How much faster than dense attention the sparse kernels are on a processor; how near to ideal.

    python -m bench.sparse [--json FILE] [--threads N] [--repeats N] [--heads N]
                           [--grids N ...] [--head-dims N ...] [--dtypes NAME ...]

Each grid, head_dim and dtype: seconds of torch's dense scaled_dot_product_attention and of each
sparse kernel, interleaved in one process, all threads; the ratio of the least times; and that
ratio's share of 1 / density, which is what arithmetic alone would give. Wall time and processor
time are both given: on a machine that others use, the second is the steadier. Extra memory is
the peak of a process of its own over its peak before the call, in multiples of the query.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from polyattn.backends import torch_sdpa
from polyattn.call import Grid
from polyattn.sparse.sliding_tile import density, sliding_tile
from polyattn.sparse.video_sparse import kept, video_sparse
from polyattn.sparse.vmoba import Selection, vmoba

GRIDS = (Grid(8, 24, 24), Grid(16, 32, 32), Grid(21, 30, 52))
# Tiles of STA and chunks of VMoBA with their top-k, by grid: upstream's shapes where they fit.
TILES = {GRIDS[0]: (4, 4, 4), GRIDS[1]: (4, 4, 4), GRIDS[2]: (6, 8, 8)}
CHUNKS = {
    GRIDS[0]: {"st": ((4, 8, 4), 12)},
    GRIDS[1]: {"st": ((4, 8, 4), 12)},
    GRIDS[2]: {
        "temporal": ((2, 30, 52), 3),
        "spatial": ((21, 3, 4), 20),
        "st": ((4, 6, 4), 15),
    },
}
SPARSITY = 0.9
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Kernel:
    """One way to attend, and the share of query-key pairs that it computes."""

    name: str
    density: float
    attend: Attend


@dataclass(frozen=True)
class Figure:
    """What was measured of one kernel. Ratios are dense over sparse, of least times."""

    grid: str
    head_dim: int
    dtype: str
    heads: int
    kernel: str
    density: float
    wall_s: float
    cpu_s: float
    wall_ratio: float
    cpu_ratio: float

    @property
    def share(self) -> float:
        """The processor-time ratio as a share of 1 / density."""
        return self.cpu_ratio * self.density


def kernels(grid: Grid, head_dim: int, heads: int) -> list[Kernel]:
    """Dense attention first, then every sparse kernel at its setting for this grid."""
    scale, tile = head_dim**-0.5, TILES[grid]
    topk, count = kept(grid, SPARSITY, "blocks")
    windows = ((3, 3, 3),) * heads
    found = [
        Kernel("dense", 1.0, torch_sdpa.attend),
        Kernel(
            f"sta {'x'.join(map(str, tile))} window 3x3x3",
            density(grid, tile, windows),
            lambda q, k, v: sliding_tile(q, k, v, grid, tile, windows, scale),
        ),
        Kernel(
            f"vsa sparsity {SPARSITY}",
            topk / count,
            lambda q, k, v: video_sparse(q, k, v, grid, topk, scale),
        ),
    ]
    sizes = (grid.frames, grid.height, grid.width)
    for kind, (chunk, best) in CHUNKS[grid].items():
        chunks = math.prod(-(-n // c) for n, c in zip(sizes, chunk, strict=True))
        selection = Selection("query_head", best)

        def attend(
            q: Tensor,
            k: Tensor,
            v: Tensor,
            chunk: tuple[int, int, int] = chunk,
            selection: Selection = selection,
        ) -> Tensor:
            return vmoba(q, k, v, grid, chunk, selection, scale)

        found.append(Kernel(f"vmoba {kind} top-{best} of {chunks}", best / chunks, attend))
    return found


def tensors(grid: Grid, head_dim: int, heads: int, dtype: torch.dtype) -> list[Tensor]:
    """Random query, key and value of one batch entry."""
    generator = torch.Generator().manual_seed(0)
    shape = (1, grid.tokens, heads, head_dim)
    return [torch.randn(shape, generator=generator).to(dtype) for _ in range(3)]


def measure(
    grid: Grid, head_dim: int, heads: int, dtype: torch.dtype, repeats: int
) -> list[Figure]:
    """Every kernel on one set of tensors, interleaved."""
    ways = kernels(grid, head_dim, heads)
    query, key, value = tensors(grid, head_dim, heads, dtype)
    best = {way.name: (math.inf, math.inf) for way in ways}
    with torch.inference_mode():
        for _ in range(repeats):
            for way in ways:
                wall, cpu = time.perf_counter(), time.process_time()
                way.attend(query, key, value)
                took = time.perf_counter() - wall, time.process_time() - cpu
                best[way.name] = min(best[way.name][0], took[0]), min(best[way.name][1], took[1])
    dense = best["dense"]
    return [
        Figure(
            str(grid),
            head_dim,
            str(dtype).removeprefix("torch."),
            heads,
            way.name,
            way.density,
            *best[way.name],
            dense[0] / best[way.name][0],
            dense[1] / best[way.name][1],
        )
        for way in ways
    ]


def extra_memory(number: int, index: int) -> float:
    """Peak memory that a kernel adds on a grid, in multiples of the query, in this process."""
    grid, heads, head_dim = GRIDS[number], 12, 64
    query, key, value = tensors(grid, head_dim, heads, torch.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with torch.inference_mode():
        kernels(grid, head_dim, heads)[index].attend(query, key, value)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (after - before) * 1024 / (query.numel() * query.element_size())


def memory(threads: int) -> dict[str, float]:
    """extra_memory() of every kernel on the middle grid, a process each."""
    found = {}
    for index, way in enumerate(kernels(GRIDS[1], 64, 12)):
        words = ("-m", "bench.sparse", "--threads", str(threads), "--memory-of", str(index))
        done = subprocess.run(
            [sys.executable, *words], check=True, capture_output=True, text=True, env=os.environ
        )
        found[way.name] = float(done.stdout)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--grids", type=int, nargs="+", default=range(len(GRIDS)), metavar="N")
    parser.add_argument("--head-dims", type=int, nargs="+", default=(64, 128), metavar="N")
    parser.add_argument("--dtypes", nargs="+", default=("float32", "bfloat16"), metavar="NAME")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--no-memory", action="store_true", help="leave the memory out")
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.memory_of is not None:
        print(extra_memory(1, arguments.memory_of))
        return
    figures: list[Figure] = []
    print(f"torch {torch.__version__}, {arguments.threads} threads, load {os.getloadavg()}")
    for number in arguments.grids:
        for head_dim in arguments.head_dims:
            for name in arguments.dtypes:
                dtype = getattr(torch, name)
                found = measure(GRIDS[number], head_dim, arguments.heads, dtype, arguments.repeats)
                figures += found
                for figure in found:
                    print(
                        f"{figure.grid:9} D{head_dim:<4}{figure.dtype:9}{figure.kernel:28}"
                        f" density {figure.density:.3f}  {figure.wall_s:7.2f} s"
                        f"  {figure.wall_ratio:5.2f}x wall {figure.cpu_ratio:5.2f}x cpu"
                        f"  {figure.share:4.0%} of ideal",
                        flush=True,
                    )
    extra = {} if arguments.no_memory else memory(arguments.threads)
    for kernel, multiple in extra.items():
        print(f"extra memory on {GRIDS[1]}, 12 heads of 64: {kernel:28} {multiple:.2f} queries")
    if arguments.json:
        data = {
            "torch": torch.__version__,
            "threads": arguments.threads,
            "figures": [{**asdict(figure), "share_of_ideal": figure.share} for figure in figures],
            "extra_memory_in_queries": extra,
        }
        arguments.json.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
