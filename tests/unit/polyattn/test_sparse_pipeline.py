"""The three sparse backends in a pipeline: chosen, bound to grid, layer and step, counted."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from polyattn.call import Grid, Site
from polyattn.errors import UnsupportedCall
from polyattn.executions import ExecutionReport
from polyattn.facts import PlatformFacts
from polyattn.integrations.diffusers import attach
from polyattn.integrations.progress import follow
from polyattn.layers import Context, GridState, LocalAttention
from polyattn.oracle import sparse as oracle
from polyattn.preferences import preferences_from_options
from polyattn.progress import Progress
from polyattn.vocabulary import Role
from tests.small_pipelines import build_wan, run_wan

GRID = Grid(3, 2, 3)  # of run_wan
SELF = Site("transformer", "blocks.1.attn1", 2, Role.SELF, 1)


def generated(
    cpu: PlatformFacts, backend: str, config: str
) -> tuple[Tensor, Tensor, ExecutionReport]:
    """A video by dense attention, the same by a backend, and what ran for the second."""
    pipeline = build_wan()
    expected = run_wan(pipeline)
    preferences = preferences_from_options(backend, attention_backend_config=config)
    attachment = attach(pipeline, preferences, cpu)
    output = run_wan(pipeline)
    report = attachment.report()
    attachment.detach()
    assert torch.equal(run_wan(pipeline), expected)
    return expected, output, report


FULL = {
    "sliding_tile_attn": "tile_size=1x1x1,window=9x9x9",
    "video_sparse_attn": "sparsity=0.0",
    "vmoba_attn": "moba_threshold=1.0,first_full_step=0",
}
SPARSE = {
    "sliding_tile_attn": "tile_size=1x1x1,window=1x1x1",
    "vmoba_attn": json.dumps({"moba_threshold": 0.1, "spatial_chunk_size": [1, 1],
                              "temporal_chunk_size": 1, "first_full_step": 1}),
}  # fmt: skip


@pytest.mark.parametrize("backend", FULL)
def test_at_full_density_the_video_is_the_dense_one(cpu: PlatformFacts, backend: str) -> None:
    expected, output, report = generated(cpu, backend, FULL[backend])
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=0)
    assert report.bypasses == ()
    rows = {row.role: row for row in report.rows if row.component == "transformer"}
    assert rows[Role.SELF].backend == backend
    assert rows[Role.SELF].calls == rows[Role.CROSS].calls == 8
    assert rows[Role.CROSS].backend == "torch_sdpa"
    assert rows[Role.CROSS].reason is not None
    assert "does not serve cross attention" in rows[Role.CROSS].reason


@pytest.mark.parametrize("backend", SPARSE)
def test_below_full_density_it_is_another_one(cpu: PlatformFacts, backend: str) -> None:
    expected, output, _ = generated(cpu, backend, SPARSE[backend])
    assert bool(output.isfinite().all())
    assert (output - expected).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("backend", "config", "reason"),
    [
        (
            "sliding_tile_attn",
            "tile_size=1x1x1,window=1x1x1,skip_time_steps=2",
            "first 2 denoising",
        ),
        ("vmoba_attn", "moba_threshold=0.1,first_full_step=2", "first 2 denoising"),
        ("vmoba_attn", "moba_threshold=0.1,first_full_step=0,first_full_layer=2", "first 2 layers"),
    ],
)
def test_steps_and_layers_that_options_make_dense_are_counted_as_dense(
    cpu: PlatformFacts, backend: str, config: str, reason: str
) -> None:
    expected, output, report = generated(cpu, backend, config)
    assert torch.equal(output, expected)
    (row,) = (r for r in report.rows if (r.component, r.role) == ("transformer", Role.SELF))
    assert (row.backend, row.requested, row.calls) == ("torch_sdpa", backend, 8)
    assert reason in str(row.reason)


@pytest.mark.parametrize(
    ("backend", "config"),
    [
        ("sliding_tile_attn", "tile_size=1x1x1,window=1x1x1,skip_time_steps=1"),
        ("vmoba_attn", "moba_threshold=0.1,first_full_step=1"),
    ],
)
def test_the_report_tells_dense_steps_from_sparse_ones_in_every_run(
    cpu: PlatformFacts, backend: str, config: str
) -> None:
    pipeline = build_wan()
    preferences = preferences_from_options(backend, attention_backend_config=config)
    attachment = attach(pipeline, preferences, cpu)
    for _ in range(2):
        before = attachment.snapshot()
        run_wan(pipeline)
        calls = {
            row.backend: row.calls
            for row in attachment.report(before).rows
            if (row.component, row.role) == ("transformer", Role.SELF)
        }
        assert calls == {"torch_sdpa": 4, backend: 4}
    attachment.detach()


def test_a_mask_strategy_reaches_step_layer_and_head(cpu: PlatformFacts, tmp_path: Path) -> None:
    windows = {f"{t}_{lay}_{h}": [1 + 2 * t, 1 + 2 * lay, 1 + 2 * h]
               for t in range(2) for lay in range(2) for h in range(2)}  # fmt: skip
    file = tmp_path / "strategy.json"
    file.write_text(json.dumps(windows))
    config = json.dumps({"mask_strategy_file_path": str(file), "tile_size": [1, 1, 1]})
    context = Context(cpu, preferences_from_options("sta", attention_backend_config=config))
    grid = GridState()
    grid.key = (3, 2, 3, 0, 0)
    attention = LocalAttention(context, SELF, grid)
    query, key, value = torch.randn(3, 1, GRID.tokens, 2, 8)
    for step in range(2):
        context.progress.step = step
        mask = oracle.sliding_tile_mask(
            GRID, (1, 1, 1), [(1 + 2 * step, 3, 1), (1 + 2 * step, 3, 3)]
        )
        expected = oracle.attend(query, key, value, [mask])
        output = attention(query, key, value)
        torch.testing.assert_close(output.double(), expected, atol=1e-5, rtol=0)
    context.progress.step = 2
    with pytest.raises(
        UnsupportedCall, match="windows for 2 denoising steps; this generation has 3"
    ):
        attention(query, key, value)
    assert [tally.calls for tally in context.tallies] == [3]

    third = LocalAttention(context, Site("transformer", "blocks.2.attn1", 4, Role.SELF, 2), grid)
    with pytest.raises(UnsupportedCall, match=r"has 2 layers; transformer\.blocks\.2\.attn1"):
        third(query, key, value)
    with pytest.raises(UnsupportedCall, match=r"has 2 heads and .* has 1"):
        attention(query[:, :, :1], key[:, :, :1], value[:, :, :1])


def test_a_grid_that_does_not_fit_is_refused_naming_both(cpu: PlatformFacts) -> None:
    context = Context(cpu, preferences_from_options("vsa"))
    grid = GridState()
    grid.key = (3, 4, 6, 5, 0)
    attention = LocalAttention(context, SELF, grid)
    attention(*torch.randn(3, 1, 70, 2, 8))
    attention.grid.key = ()
    attention(*torch.randn(3, 1, 70, 2, 8))
    reasons = [str(tally.selection.reason) for tally in context.tallies]
    assert reasons[0].startswith(
        "vsa needs a token grid that fits: 3x4x6 + 5 text tokens is not 70 tokens"
    )
    assert reasons[1].startswith("vsa needs the token grid, which is not known at this site")


class _Scheduler:
    """What a pipeline calls of a scheduler."""

    def __init__(self) -> None:
        self.timesteps: Any = []
        self.stepped = 0

    def set_timesteps(self, count: int, device: str = "cpu") -> None:
        """As diffusers' schedulers."""
        self.timesteps = torch.arange(count, device=device)

    def step(self, sample: int) -> int:
        """As diffusers' schedulers."""
        self.stepped += 1
        return sample + 1


def test_progress_follows_the_scheduler_and_lets_go() -> None:
    class Pipeline:
        scheduler = _Scheduler()

    progress = Progress()
    undo = follow(Pipeline, progress)
    scheduler = Pipeline.scheduler
    scheduler.set_timesteps(5)
    assert (progress.step, progress.steps) == (0, 5)
    assert scheduler.step(1) == 2
    assert progress.step == 1
    # A copy steps itself, and not what is followed.
    other = copy.deepcopy(scheduler)
    other.step(1)
    assert (other.stepped, scheduler.stepped, progress.step) == (2, 1, 1)
    scheduler.set_timesteps(3)
    assert (progress.step, progress.steps) == (0, 3)
    undo()
    assert type(scheduler) is _Scheduler
    scheduler.step(1)
    assert progress.step == 0
    follow(object(), progress)()
