"""Searching windows and choosing them: what is measured, what is chosen, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from polyattn.call import Grid, Site
from polyattn.errors import InvalidOptions
from polyattn.facts import PlatformFacts
from polyattn.layers import Context, GridState, LocalAttention
from polyattn.oracle import dense
from polyattn.oracle import sparse as oracle
from polyattn.preferences import preferences_from_options
from polyattn.sparse.search import Recorder, candidates
from polyattn.sparse.tuning import Losses, average, read_all, tune
from polyattn.vocabulary import Role

WINDOWS = ((1, 1, 1), (1, 1, 3))


def losses(*per_step: tuple[float, ...], grid: str = "1x1x9") -> Losses:
    """One layer and head: a candidate of density 1/9 and one of 1/3."""
    return Losses(
        grid, (1, 1, 1), (1, 1, 9), WINDOWS, (1 / 9, 1 / 3), tuple(((v,),) for v in per_step)
    )


def test_what_is_measured_is_the_distance_from_full_attention(cpu: PlatformFacts) -> None:
    context = Context(cpu, preferences_from_options("sta"))
    grid = GridState()
    grid.key = (2, 2, 4, 0, 0)
    recorder = Recorder((1, 1, 1), WINDOWS)
    context.progress.recorder = recorder
    query, key, value = torch.randn(3, 1, 16, 2, 8)
    for layer in range(2):
        site = Site("transformer", f"blocks.{layer}.attn1", 2 * layer, Role.SELF, layer)
        attention = LocalAttention(context, site, grid)
        full, _ = dense.attend(query, key, value)
        for _ in range(2):  # guidance calls twice
            torch.testing.assert_close(
                attention(query, key, value).double(), full, atol=1e-5, rtol=0
            )
    found = recorder.take()
    assert (len(found.l2), len(found.l2[0]), len(found.l2[0][0])) == (1, 2, 2)
    for number, window in enumerate(WINDOWS):
        mask = oracle.sliding_tile_mask(Grid(2, 2, 4), (1, 1, 1), (window,) * 2)
        sparse = oracle.attend(query, key, value, [mask])
        for head in range(2):
            expected = (sparse - full)[:, :, head].square().mean().item()
            assert found.l2[0][1][head][number] == pytest.approx(expected, rel=1e-3)
    assert found.densities[0] == 1 / 16
    with pytest.raises(InvalidOptions, match="Nothing was measured"):
        recorder.take()


def test_upstreams_windows_are_tried_on_upstreams_canvas() -> None:
    assert (1, 6, 5) in candidates((3, 6, 10))
    assert candidates((1, 4, 5)) == ((1, 3, 3), (1, 3, 5), (1, 4, 3))
    assert candidates((1, 1, 1)) == ()


def test_losses_survive_a_file_and_foreign_ones_are_refused(tmp_path: Path) -> None:
    written = losses((0.5, 0.25), (0.1, 0.2))
    written.write(tmp_path / "losses_a.json")
    losses((0.1, 0.05), (0.1, 0.0)).write(tmp_path / "losses_b.json")
    assert Losses.read(tmp_path / "losses_a.json") == written
    assert average(read_all(tmp_path)).l2[0][0][0] == pytest.approx((0.3, 0.15))
    losses((0.5, 0.25), grid="1x1x10").write(tmp_path / "losses_c.json")
    with pytest.raises(InvalidOptions, match="tune them apart"):
        average(read_all(tmp_path))
    (tmp_path / "losses_d.json").write_text("{}")
    with pytest.raises(InvalidOptions, match=r"losses_d\.json holds no losses"):
        read_all(tmp_path)
    with pytest.raises(InvalidOptions, match="holds no losses_"):
        read_all(tmp_path / "none")


def test_without_a_target_the_least_loss_wins_after_the_skipped_steps() -> None:
    tuned = tune(losses((0.1, 0.2), (0.1, 0.2), (0.2, 0.1)), 1, None, "x")
    assert [step[0][0] for step in tuned.strategy.windows] == [(1, 1, 9), (1, 1, 1), (1, 1, 3)]
    assert tuned.density == pytest.approx((1 + 1 / 9 + 1 / 3) / 3)


@pytest.mark.parametrize(
    ("target", "chosen"),
    [
        (1.0, [(1, 1, 9)] * 3),
        (0.8, [(1, 1, 9), (1, 1, 9), (1, 1, 3)]),  # the third step loses least
        (0.12, [(1, 1, 1)] * 3),
    ],
)
def test_a_target_density_is_kept_at_the_least_loss(
    target: float, chosen: list[tuple[int, int, int]]
) -> None:
    tuned = tune(losses((9.0, 5.0), (9.0, 5.0), (0.9, 0.1)), 0, target, "x")
    assert [step[0][0] for step in tuned.strategy.windows] == chosen
    assert tuned.density <= target


def test_a_target_that_cannot_be_reached_is_refused() -> None:
    with pytest.raises(InvalidOptions, match=r"with 1 steps in full .* 0.556"):
        tune(losses((0.1, 0.2), (0.1, 0.2)), 1, 0.2, "x")
