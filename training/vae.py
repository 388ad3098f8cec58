"""Trains the VAE: its decoder to undo the linear latents, its encoder to give them."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKLWan
from torch import Tensor, nn

from training import checkpoints
from training.architecture import build_vae
from training.latents import CHANNELS, LatentSpace, latent_space_at
from training.muon import Muon
from training.scenes import Placement, render
from training.world import all_combinations, random_scene

LOG_VARIANCE = -14.0
"""The encoder's, constant: a sample of its distribution is its mean."""


@dataclass(frozen=True)
class VaeSettings:
    seconds: float = 45 * 60
    learning_rate: float = 2e-3
    warm_up_steps: int = 30
    latent_noise: float = 0.12
    """The transformer's latents are not exact: the decoder meets noise up to this."""
    decoder_share: float = 0.65
    ema: float = 0.995
    checkpoint_every: float = 120.0


def decode(vae: AutoencoderKLWan, latents: Tensor) -> Tensor:
    """As AutoencoderKLWan._decode, chunk by chunk through the feature cache, but not clamped.

    The plain decoder.forward does no upsampling in time, so it must not be trained with.
    """
    vae.clear_cache()
    x = vae.post_quant_conv(latents)
    chunks = []
    for i in range(latents.shape[2]):
        vae._conv_idx = [0]
        chunks.append(
            vae.decoder(
                x[:, :, i : i + 1],
                feat_cache=vae._feat_map,
                feat_idx=vae._conv_idx,
                first_chunk=i == 0,
            )
        )
    vae.clear_cache()
    return torch.cat(chunks, 2)


def video_crops(rng: random.Random, generator: torch.Generator) -> Tensor:
    """(batch, 3, frames, h, w): pieces of rendered videos, of a size drawn per batch."""
    side = rng.choice((64, 64, 128))
    frames = rng.choice((1, 5, 9, 13))
    height, width = (rng.choice((24, 32, 40, 48, 64)) for _ in range(2))
    batch = max(2, 8 * 13 * 32 * 32 // (frames * height * width))
    batch = min(batch, 16)
    combinations = all_combinations()
    scenes = [random_scene(rng, combinations) for _ in range(batch)]
    pixels = render(scenes, 13, side, side, Placement.jittered(batch, generator))
    start = rng.randrange(13 - frames + 1)
    # Around the middle more often than not: plain background teaches little.
    middle = (side - height) // 2, (side - width) // 2
    top, left = (
        min(max(0, m + rng.randrange(-16, 17)), side - extent)
        for m, extent in zip(middle, (height, width), strict=True)
    )
    return pixels[:, :, start : start + frames, top : top + height, left : left + width]


def decoder_loss(
    vae: AutoencoderKLWan, space: LatentSpace, pixels: Tensor, latent_noise: float
) -> Tensor:
    latents = space.encode(pixels)
    amount = torch.rand(len(latents), 1, 1, 1, 1) * latent_noise
    difference = decode(vae, latents + amount * torch.randn_like(latents)) - pixels
    # The absolute part keeps edges crisp, where squares alone would blur them.
    return difference.square().mean() + 0.05 * difference.abs().mean()


def encoder_loss(vae: AutoencoderKLWan, space: LatentSpace, pixels: Tensor) -> Tensor:
    mean = vae._encode(pixels)[:, :CHANNELS]
    # In units of each component, so that fine ones count.
    target = space.encode(pixels)
    return F.smooth_l1_loss(mean, target, beta=0.05)


def round_trip(vae: AutoencoderKLWan, space: LatentSpace) -> dict[str, float]:
    """PSNR in dB on 24 videos never trained on: of the decoder alone, of encoder and decoder."""
    rng, generator = random.Random(-1), torch.Generator().manual_seed(10**6)
    combinations = all_combinations()
    scenes = [random_scene(rng, combinations) for _ in range(24)]
    pixels = render(scenes, 13, 64, 64, Placement.jittered(24, generator))
    with torch.no_grad():
        latents = space.encode(pixels)
        results = {
            "linear": space.decode(latents).clamp(-1, 1),
            "decoder": vae.decode(latents).sample,
            "encoder and decoder": vae.decode(vae.encode(pixels).latent_dist.mode()).sample,
        }
    return {name: psnr(value, pixels) for name, value in results.items()}


def psnr(value: Tensor, reference: Tensor) -> float:
    """For values in [-1, 1]."""
    return 10 * math.log10(4 / (value - reference).square().mean().item())


def train(folder: Path, settings: VaeSettings) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    vae = build_vae()
    with torch.no_grad():
        for tensor, value in ((vae.quant_conv.weight, 0.0), (vae.quant_conv.bias, LOG_VARIANCE)):
            assert tensor is not None
            tensor[CHANNELS:] = value
    average = {k: v.clone() for k, v in vae.state_dict().items()}
    trained = [p for p in vae.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.ndim >= 4 and min(p.shape[0], p[0].numel()) > 3]
    chosen = {id(p) for p in matrices}
    muon = Muon(matrices, settings.learning_rate)
    adam = torch.optim.AdamW(
        [p for p in trained if id(p) not in chosen],
        settings.learning_rate,
        betas=(0.9, 0.98),
        weight_decay=0.0,
    )
    step, spent = 0, 0.0
    path = folder / "vae.pt"
    if (state := checkpoints.load(path)) is not None:
        vae.load_state_dict(state["model"])
        average = state["average"]
        muon.load_state_dict(state["muon"])
        adam.load_state_dict(state["adam"])
        step, spent = state["step"], state["spent"]

    space = latent_space_at(folder)
    losses: dict[str, list[float]] = {"decoder": [], "encoder": []}
    last, last_saved = time.monotonic(), spent
    while spent < settings.seconds:
        progress = spent / settings.seconds
        factor = min(1.0, (step + 1) / settings.warm_up_steps) * (
            0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * max(0.0, progress - 0.3) / 0.7))
        )
        for group in [*muon.param_groups, *adam.param_groups]:
            group["lr"] = settings.learning_rate * factor
        rng, generator = random.Random(step), torch.Generator().manual_seed(step)
        pixels = video_crops(rng, generator)
        if rng.random() < settings.decoder_share:
            which = "decoder"
            loss = decoder_loss(vae, space, pixels, settings.latent_noise)
        else:
            which = "encoder"
            loss = encoder_loss(vae, space, pixels)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(trained, 1.0)
        for p in (vae.quant_conv.weight, vae.quant_conv.bias):
            if p is not None and p.grad is not None:
                p.grad[CHANNELS:] = 0
        muon.step()
        adam.step()
        vae.zero_grad(set_to_none=True)
        with torch.no_grad():
            vae.quant_conv.weight[CHANNELS:] = 0
            current = vae.state_dict()
            decay = min(settings.ema, (1 + step) / (10 + step))
            torch._foreach_lerp_(list(average.values()), [current[k] for k in average], 1 - decay)
        losses[which].append(loss.item())
        step += 1
        now = time.monotonic()
        spent, last = spent + min(now - last, 10.0), now
        if step % 50 == 0:
            means = " ".join(f"{k}:{sum(v) / len(v):.5f}" for k, v in losses.items() if v)
            print(
                f"{time.strftime('%H:%M:%S')} step {step} {spent:.0f}s lr x{factor:.3f} {means}",
                flush=True,
            )
            losses = {"decoder": [], "encoder": []}
        if spent - last_saved > settings.checkpoint_every or spent >= settings.seconds:
            last_saved = spent
            checkpoints.save(
                {
                    "model": vae.state_dict(),
                    "average": average,
                    "muon": muon.state_dict(),
                    "adam": adam.state_dict(),
                    "step": step,
                    "spent": spent,
                },
                path,
            )
            vae.load_state_dict(average)
            print(round_trip(vae, space), flush=True)
            vae.load_state_dict(checkpoints.load(path)["model"])  # type: ignore[index]
