"""The latent space: a fixed linear map of 4x4x4 pixel blocks, found once by PCA.

The transformer learns in this space with no encoder in the loop, and the VAE is taught the
same space apart from it, so that both can be trained at the same time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from training.scenes import Placement, render
from training.world import random_scene, seen_combinations

CHANNELS = 12
BLOCK = 4
"""Pixels and frames along each side of a block, as the VAE compresses."""


@dataclass(frozen=True)
class LatentSpace:
    """mean (192,), basis (12, 192) with orthonormal rows, scale (12,): latent per component."""

    mean: Tensor
    basis: Tensor
    scale: Tensor

    def encode(self, pixels: Tensor) -> Tensor:
        """(batch, 3, 1 + 4k, h, w) in [-1, 1] to (batch, 12, 1 + k, h / 4, w / 4)."""
        components = (self.basis * self.scale[:, None]).view(CHANNELS, 3, BLOCK, BLOCK, BLOCK)
        offset = -(self.basis @ self.mean) * self.scale
        # The Wan convention: the first frame is a block of its own, here four times itself.
        first = pixels[:, :, :1].expand(-1, -1, BLOCK - 1, -1, -1)
        return F.conv3d(torch.cat([first, pixels], 2), components, offset, stride=BLOCK)

    def decode(self, latents: Tensor) -> Tensor:
        """The linear inverse: what the VAE's decoder has to beat."""
        components = (self.basis / self.scale[:, None]).view(CHANNELS, 3, BLOCK, BLOCK, BLOCK)
        pixels = F.conv_transpose3d(latents, components, stride=BLOCK)
        _, _, t, h, w = latents.shape
        mean = self.mean.view(1, 3, BLOCK, BLOCK, BLOCK).repeat(1, 1, t, h, w)
        return (pixels + mean)[:, :, BLOCK - 1 :]

    def save(self, path: Path) -> None:
        torch.save({"mean": self.mean, "basis": self.basis, "scale": self.scale}, path)

    @staticmethod
    def load(path: Path) -> LatentSpace:
        return LatentSpace(**torch.load(path, weights_only=True))


def find_latent_space(samples: int = 240) -> LatentSpace:
    """PCA over rendered blocks; deterministic."""
    generator = torch.Generator().manual_seed(1)
    rng = random.Random(1)
    combinations = seen_combinations()
    scenes = [random_scene(rng, combinations) for _ in range(samples)]
    videos = render(scenes, 12, 64, 64, Placement.jittered(samples, generator))
    blocks = videos.unfold(2, 4, 4).unfold(3, 4, 4).unfold(4, 4, 4)
    flat = blocks.permute(0, 2, 3, 4, 1, 5, 6, 7).reshape(-1, 3 * BLOCK**3).double()
    mean = flat.mean(0)
    values, vectors = torch.linalg.eigh(torch.cov(flat.T))
    order = values.argsort(descending=True)[:CHANNELS]
    basis = vectors[:, order].T
    # A sign convention, since eigenvectors have none.
    basis = basis * basis.gather(1, basis.abs().argmax(1, keepdim=True)).sign()
    deviation = values[order].sqrt()
    # Half-whitened: coarse components stay stronger, so that denoising goes coarse to fine.
    target = 0.6 * (deviation / deviation[1]) ** 0.4
    target[0] = 1.0
    return LatentSpace(mean.float(), basis.float(), (target / deviation).float())


def latent_space_at(folder: Path) -> LatentSpace:
    """The latent space of a training folder, found at the first use."""
    path = folder / "latents.pt"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        find_latent_space().save(path)
    return LatentSpace.load(path)
