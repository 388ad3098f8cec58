from __future__ import annotations

import random

import torch

from training.latents import CHANNELS, find_latent_space
from training.scenes import Placement, coverage, render
from training.world import all_combinations, random_scene


def batch(seed: int, side: int, frames: int) -> torch.Tensor:
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    scenes = [random_scene(rng, all_combinations()) for _ in range(8)]
    return render(scenes, frames, side, side, Placement.jittered(8, generator))


def test_scenes_are_a_function_of_their_seed() -> None:
    assert torch.equal(batch(3, 64, 13), batch(3, 64, 13))
    assert not torch.equal(batch(3, 64, 13), batch(4, 64, 13))


def test_coverage_is_a_share_and_shapes_stay_inside_the_canvas() -> None:
    rng, generator = random.Random(5), torch.Generator().manual_seed(5)
    scenes = [random_scene(rng, all_combinations()) for _ in range(60)]
    inside = coverage(scenes, 13, 64, 64, Placement.jittered(60, generator))
    assert inside.min() >= 0
    assert inside.max() <= 1
    border = torch.cat(
        [
            inside[..., :1, :].flatten(),
            inside[..., -1:, :].flatten(),
            inside[..., :1].flatten(),
            inside[..., -1:].flatten(),
        ]
    )
    # A tip of a star may touch the edge.
    assert border.mean() < 1e-3


def test_latents_have_the_vae_s_shape_and_invert() -> None:
    space = find_latent_space(60)
    for side, frames in ((64, 13), (64, 1), (128, 13)):
        pixels = batch(7, side, frames)
        latents = space.encode(pixels)
        assert latents.shape == (8, CHANNELS, 1 + (frames - 1) // 4, side // 4, side // 4)
        error = (space.decode(latents).clamp(-1, 1) - pixels).square().mean()
        # The linear inverse, which the trained decoder has to beat.
        assert 10 * torch.log10(4 / error) > 26
    # What lies in the space comes back exactly.
    z = torch.randn(2, CHANNELS, 3, 4, 4)
    pixels = space.decode(z)
    first = space.encode(pixels)
    assert torch.allclose(first[:, :, 1:], z[:, :, 1:], atol=1e-4)
