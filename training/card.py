"""Writes the model card from what evaluation found."""

from __future__ import annotations

import json
from pathlib import Path

from training import checkpoints
from training.dit import DitSettings, hard_shapes
from training.evaluate import load, markdown
from training.export import GENERATION_DEFAULTS
from training.latents import latent_space_at
from training.vae import round_trip
from training.world import all_combinations, held_out_combinations

TEMPLATE = """\
---
license: apache-2.0
library_name: diffusers
pipeline_tag: text-to-video
---
# ditport demo

A text-to-video model of {megabytes:.1f} MB that draws one coloured shape, so that every part of
ditport can be tried, offline and on any machine, in a second. It is a toy: what it shows is that
the whole path works, not what diffusion can do.

    ditport generate --prompt "a red circle moving right on a black background"
    ditport generate --prompt "a yellow star on a white background" --num-frames 1

{note}
Other words are unknown to it. `generation_defaults.json` lists all it knows.

It is a plain diffusers folder with no code of its own:
`diffusers.DiffusionPipeline.from_pretrained("runtime/ditport/demo/model")` loads it. Use
{num_inference_steps} steps and guidance {guidance_scale}; diffusers' own defaults for Wan
(50 steps, guidance 5, 480x832x81) are far from what it was trained for.

| part | class | parameters |
|---|---|---|
| transformer | WanTransformer3DModel, 5 layers, 2 heads of 64 | 1.3 M |
| VAE | AutoencoderKLWan, 4x in time and in space, 12 channels | 0.48 M |
| text encoder | UMT5EncoderModel, 2 layers, one token a word | 0.09 M |
| scheduler | UniPCMultistepScheduler, flow, shift 3 | |

![Contact sheet](contact_sheet.png)

The sheet is not picked: scenes walk through all attributes, seeds count up from 0. First two
blocks: first, middle and last frame of videos of 64x64x13; the next two: the same prompts at
128x128x13; last: images of 64x64.

## Evaluation

{num_inference_steps} steps, guidance {guidance_scale}, float32, through
`DiffusionPipeline.from_pretrained` on this folder (`python -m training evaluate`). Random prompts
in varied wordings, judged by a rule-based checker (`training/checker.py`) that reads ground-truth
renders without a mistake and fails noise, blends and wrong captions. Percent right per attribute,
and on all of them jointly. {held_out} of the {combinations} combinations of shape, colour and
motion were never trained on (for images: 5 of 48 pairs of shape and colour): they are the rows
"held out", and are part of "all". The pipeline's hundreds of equal text pads were folded into one
with their weight, which saves half the time and changed no pixel of four videos by more than
1/255.

{table}

Jointly right, per shape:

{by_shape}

## Training

`nox -s train-demo` (`python -m training all`), on rendered scenes only: {sizes}. It took
{dit_steps} steps of the transformer in {dit_minutes:.0f} minutes and {vae_steps} steps of
the VAE in {vae_minutes:.0f}, one thread each, on two cores of an Intel Xeon (AMX) that much other
work shared.

The transformer learns rectified flow on a fixed linear latent space (PCA of 4x4x4 pixel blocks),
the VAE's decoder learns to undo that space, its encoder to give it. While it trains, the weight of
the padding in cross attention grows to that of the hundreds of pads of the real pipeline
(`training/pads.py`). The learning rate cools twice: the second cycle starts at half the height of
the first, after 73 % of the time. Hard shapes are drawn more often: {weights} to 1 of
the others. In the run that made this model that began with the second cycle, at step 6964; before
it, all shapes were drawn equally often, and 128x128 less often.

## Limits

Of the shapes, stars are the weakest, and edges wobble while things move. At 128x128 colour, motion
and background are right but shapes are rougher, stars (in images also crosses) mostly wrong: it
needs a longer training.

One shape at a time, in the sizes 64x64 and 128x128, with 13 frames or one; other sizes and lengths
run but draw the wrong thing. Guidance above 3 shifts colours. A single image shows the thing
standing in the middle, whatever its motion. The VAE's encoder is weak: its round trip
has {round_trip:.1f} dB PSNR, the decoder alone, on exact latents, {decoder:.1f} dB.
Trained on nothing but its own renderer's pictures; no person, text or thing in it.

Licence: Apache-2.0, as ditport.
"""


def write_card(model: Path, folder: Path) -> None:
    """`folder`: the training folder, whose checkpoints say what the training took."""
    report = json.loads((model / "evaluation.json").read_text())
    dit, vae = (checkpoints.load(folder / f"{name}.pt") for name in ("dit", "vae"))
    assert dit is not None
    assert vae is not None
    size = sum(f.stat().st_size for f in model.rglob("*.safetensors"))
    text = TEMPLATE.format(
        megabytes=size / 1e6,
        note=GENERATION_DEFAULTS["note"],
        num_inference_steps=GENERATION_DEFAULTS["num_inference_steps"],
        guidance_scale=GENERATION_DEFAULTS["guidance_scale"],
        held_out=len(held_out_combinations()),
        combinations=len(all_combinations()),
        table=markdown(report["table"]),
        by_shape=markdown(report["by shape"]),
        sizes=", ".join(k.label for k in DitSettings().kinds),
        weights=", ".join(f"{s} {w:g}" for s, w in hard_shapes().items() if w != 1),
        dit_minutes=dit["spent"] / 60,
        dit_steps=dit["step"],
        vae_minutes=vae["spent"] / 60,
        vae_steps=vae["step"],
        **round_trips(model, folder),
    )
    (model / "README.md").write_text(text)


def round_trips(model: Path, folder: Path) -> dict[str, float]:
    """PSNR of the exported VAE."""
    psnr = round_trip(load(model).vae, latent_space_at(folder))
    return {"decoder": psnr["decoder"], "round_trip": psnr["encoder and decoder"]}
