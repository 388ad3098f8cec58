"""Trains the transformer and its text encoder together, by rectified flow on linear latents."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from training import checkpoints
from training.architecture import build_text_encoder, build_tokenizer, build_transformer
from training.captions import caption
from training.latents import LatentSpace, latent_space_at
from training.muon import Muon
from training.pads import TEXT_LENGTH, TrainingAttention, pad_bias
from training.scenes import Placement, render
from training.world import MOTIONS, Scene, random_scene, seen_combinations


@dataclass(frozen=True)
class BatchKind:
    """One size of the mix. share: of the steps, at the start and from `ramp_end` on."""

    frames: int
    side: int
    batch: int
    share_from: float
    share_to: float

    @property
    def label(self) -> str:
        return f"{self.side}x{self.side}x{self.frames}"


@dataclass(frozen=True)
class Cycle:
    """A stretch of the learning rate: warm up, hold, cool to almost nothing.

    Shares are of the whole budget; a cycle lasts until the next one starts.
    """

    start: float
    cooling_from: float
    peak: float
    """Of DitSettings.learning_rate."""


def hard_shapes() -> dict[str, float]:
    return {"circle": 1.0, "square": 1.0, "triangle": 1.0, "cross": 1.5, "ring": 2.0, "star": 3.0}


@dataclass(frozen=True)
class DitSettings:
    """Shares are of the time budget: a slower machine trains less, not longer."""

    seconds: float = 120 * 60
    learning_rate: float = 2e-3
    warm_up: float = 0.01
    """Share, at the start of each cycle."""
    cycles: tuple[Cycle, ...] = (Cycle(0.0, 0.40, 1.0), Cycle(0.73, 0.80, 0.5))
    mix_ramp: tuple[float, float] = (0.20, 0.44)
    pad_ramp: tuple[float, float] = (0.09, 0.25)
    ema: float = 0.997
    caption_dropout: float = 0.10
    shift: float = 4.0
    checkpoint_every: float = 120.0
    compile: bool = True
    kinds: tuple[BatchKind, ...] = (
        BatchKind(1, 64, 48, 0.60, 0.10),
        BatchKind(13, 64, 16, 0.40, 0.43),
        BatchKind(1, 128, 12, 0.00, 0.12),
        BatchKind(13, 128, 4, 0.00, 0.35),
    )
    shape_weights: Mapping[str, float] = field(default_factory=hard_shapes)
    """How often each shape is drawn, relative to the others: the hard ones more often."""


class TextedTransformer(nn.Module):
    """Prompt tokens and noisy latents in, velocity out: what one step of the pipeline computes."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = build_transformer()
        self.text_encoder = build_text_encoder()
        self.bias: Tensor
        self.register_buffer("bias", pad_bias(0.0), persistent=False)
        self.transformer.set_attn_processor(TrainingAttention(self.bias))

    def forward(self, noisy: Tensor, timestep: Tensor, tokens: Tensor) -> Tensor:
        """noisy (b, 12, t, h, w), timestep (b,) in [0, 1000], tokens (b, TEXT_LENGTH)."""
        mask = (tokens != 0).long()
        text = self.text_encoder(tokens, mask).last_hidden_state
        # WanPipeline replaces what stands at pads by zeros.
        text = text * mask[..., None]
        velocity: Tensor = self.transformer(noisy, timestep, text, return_dict=False)[0]
        return velocity


class BatchSource:
    """Endless rendered batches, a function of seed and step alone."""

    def __init__(
        self, space: LatentSpace, caption_dropout: float, shape_weights: Mapping[str, float]
    ) -> None:
        self.space = space
        self.tokenizer = build_tokenizer()
        self.combinations = seen_combinations()
        self.weights = [shape_weights[shape] for shape, _, _ in self.combinations]
        self.caption_dropout = caption_dropout

    def draw(self, kind: BatchKind, step: int) -> tuple[Tensor, Tensor]:
        """Clean latents and tokens."""
        rng = random.Random(step)
        generator = torch.Generator().manual_seed(step)
        drawn = rng.choices(self.combinations, self.weights, k=kind.batch)
        scenes = [random_scene(rng, [combination]) for combination in drawn]
        if kind.frames == 1:
            scenes = [_plainer(s, rng) for s in scenes]
        captions = ["" if rng.random() < self.caption_dropout else caption(s, rng) for s in scenes]
        tokens = self.tokenizer(
            captions,
            padding="max_length",
            max_length=TEXT_LENGTH,
            truncation=True,
            return_tensors="pt",
        ).input_ids
        placement = Placement.jittered(kind.batch, generator)
        pixels = render(scenes, kind.frames, kind.side, kind.side, placement)
        return self.space.encode(pixels), tokens


def _plainer(scene: Scene, rng: random.Random) -> Scene:
    """Images mostly stand still in their caption; where they do not, their content is the same."""
    if rng.random() < 0.6:
        return Scene(scene.shape, scene.colour, MOTIONS[0], scene.background)
    return scene


def noise_levels(batch: int, shift: float, generator: torch.Generator) -> Tensor:
    """(batch,) in (0, 1): 60 % logit-normal, 40 % uniform, then shifted towards noise."""
    normal = torch.sigmoid(torch.randn(batch, generator=generator) * 1.2)
    # Stratified, so that a small batch still sees all levels.
    uniform = (
        torch.randperm(batch, generator=generator) + torch.rand(batch, generator=generator)
    ) / batch
    u = torch.where(torch.rand(batch, generator=generator) < 0.6, normal, uniform)
    return shift * u / (1 + (shift - 1) * u)


def learning_rate_factor(progress: float, settings: DitSettings) -> float:
    """Of the learning rate, at `progress` in [0, 1] of the budget."""
    current = max(i for i, c in enumerate(settings.cycles) if c.start <= progress)
    cycle = settings.cycles[current]
    end = settings.cycles[current + 1].start if current + 1 < len(settings.cycles) else 1.0
    warm = ramp(progress, (cycle.start, cycle.start + settings.warm_up))
    cooling = ramp(progress, (cycle.cooling_from, end))
    return cycle.peak * warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * cooling)))


def ramp(progress: float, between: tuple[float, float]) -> float:
    start, end = between
    return min(1.0, max(0.0, (progress - start) / (end - start)))


def train(folder: Path, settings: DitSettings, deadline: float | None = None) -> None:
    """Trains until the budget is spent; continues from the checkpoint in `folder` if any.

    With a `deadline` (as time.time() counts), the budget is what is left until then.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = TextedTransformer()
    average = {k: v.clone() for k, v in model.state_dict().items()}
    matrices = [
        p
        for n, p in model.named_parameters()
        if p.ndim == 2 and ".blocks." in n and "scale_shift" not in n
    ]
    chosen = {id(p) for p in matrices}
    vectors = [p for p in model.parameters() if id(p) not in chosen and p.requires_grad]
    muon = Muon(matrices, settings.learning_rate)
    adam = torch.optim.AdamW(vectors, settings.learning_rate, betas=(0.9, 0.98), weight_decay=0.0)

    step, spent = 0, 0.0
    path = folder / "dit.pt"
    if (state := checkpoints.load(path)) is not None:
        model.load_state_dict(state["model"])
        average = state["average"]
        muon.load_state_dict(state["muon"])
        adam.load_state_dict(state["adam"])
        step, spent = state["step"], state["spent"]
        print(f"continues at step {step}, {spent:.0f} s spent", flush=True)

    def save() -> None:
        checkpoints.save(
            {
                "model": model.state_dict(),
                "average": average,
                "muon": muon.state_dict(),
                "adam": adam.state_dict(),
                "step": step,
                "spent": spent,
            },
            path,
        )

    source = BatchSource(latent_space_at(folder), settings.caption_dropout, settings.shape_weights)
    forward = torch.compile(model, dynamic=False) if settings.compile else model
    losses: dict[str, list[float]] = {}
    last, last_saved = time.monotonic(), spent
    budget = settings.seconds
    while True:
        if deadline is not None:
            # Anew at each step: what compiling takes is not left for learning.
            budget = spent + max(0.0, deadline - time.time())
        if spent >= budget:
            break
        progress = spent / budget
        mix = ramp(progress, settings.mix_ramp)
        kind = random.Random(-step).choices(
            settings.kinds,
            [k.share_from + mix * (k.share_to - k.share_from) for k in settings.kinds],
        )[0]
        with torch.no_grad():
            model.bias.copy_(pad_bias(ramp(progress, settings.pad_ramp)))
        factor = learning_rate_factor(progress, settings)
        for group in [*muon.param_groups, *adam.param_groups]:
            group["lr"] = settings.learning_rate * factor

        clean, tokens = source.draw(kind, step)
        generator = torch.Generator().manual_seed(step + 2**40)
        noise = torch.randn(clean.shape, generator=generator)
        s = noise_levels(kind.batch, settings.shift, generator)
        level = s.view(-1, 1, 1, 1, 1)
        with torch.autocast("cpu", torch.bfloat16):
            velocity = forward(clean + level * (noise - clean), s * 1000, tokens)
        loss = (velocity.float() - (noise - clean)).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        muon.step()
        adam.step()
        model.zero_grad(set_to_none=True)
        decay = min(settings.ema, (1 + step) / (10 + step))
        with torch.no_grad():
            current = model.state_dict()
            torch._foreach_lerp_(list(average.values()), [current[k] for k in average], 1 - decay)

        step += 1
        losses.setdefault(kind.label, []).append(loss.item())
        now = time.monotonic()
        # A first step of a size compiles for a minute: the budget is for learning.
        spent += min(now - last, 10.0)
        last = now
        if step % 50 == 0:
            means = " ".join(f"{k}:{sum(v) / len(v):.4f}({len(v)})" for k, v in losses.items())
            print(
                f"{time.strftime('%H:%M:%S')} step {step} {spent:.0f}s lr x{factor:.3f} {means}",
                flush=True,
            )
            losses = {}
        if spent - last_saved > settings.checkpoint_every:
            last_saved = spent
            save()
    save()
