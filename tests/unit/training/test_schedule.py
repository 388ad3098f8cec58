from __future__ import annotations

import pytest
import torch

from training.dit import BatchKind, BatchSource, DitSettings, hard_shapes, learning_rate_factor
from training.latents import LatentSpace, find_latent_space
from training.world import SHAPES, held_out_combinations


@pytest.fixture(scope="module")
def space() -> LatentSpace:
    return find_latent_space(20)


def test_each_cycle_warms_holds_and_cools() -> None:
    settings = DitSettings()
    ends = [*(c.start for c in settings.cycles[1:]), 1.0]
    for cycle, end in zip(settings.cycles, ends, strict=True):
        assert learning_rate_factor(cycle.start, settings) == 0
        for held in (cycle.start + settings.warm_up, cycle.cooling_from):
            assert learning_rate_factor(held, settings) == pytest.approx(cycle.peak)
        assert learning_rate_factor(end - 1e-6, settings) < 0.011 * cycle.peak
    assert learning_rate_factor(1.0, settings) < 0.011


def test_batches_are_a_function_of_their_step(space: LatentSpace) -> None:
    source, kind = BatchSource(space, 0.1, hard_shapes()), BatchKind(1, 64, 6, 1, 1)
    first, again, other = source.draw(kind, 5), source.draw(kind, 5), source.draw(kind, 6)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


def test_shapes_are_drawn_by_their_weights_and_held_out_ones_never(space: LatentSpace) -> None:
    assert set(hard_shapes()) == set(SHAPES)
    only_stars = {shape: float(shape == "star") for shape in SHAPES}
    source = BatchSource(space, 0.0, only_stars)
    star = source.tokenizer.convert_tokens_to_ids("star")
    _, tokens = source.draw(BatchKind(1, 64, 40, 1, 1), 0)
    assert (tokens == star).any(1).all()

    source = BatchSource(space, 0.0, hard_shapes())
    weight_of = dict.fromkeys(SHAPES, 0.0)
    for combination, weight in zip(source.combinations, source.weights, strict=True):
        assert combination not in held_out_combinations()
        weight_of[combination[0]] += weight
    assert max(weight_of, key=lambda shape: weight_of[shape]) == "star"
