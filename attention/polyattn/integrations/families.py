"""The model families of diffusers that are known by name: one row each.

Routing needs no row: sites are found by reading code (sites.py), so an unknown model is routed as
well. A row adds what code does not say: which sites see text and image together, which stand on
text alone, and how the token grid is read. `docs/generated/families.md` lists the rows.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from torch import nn

from polyattn.integrations import diffusers_grid as grids
from polyattn.integrations.diffusers_grid import Reader
from polyattn.vocabulary import Role


@dataclass(frozen=True)
class Family:
    """What is known of some model classes. Patterns are searched for in a site's path.

    `cross` and `joint` overrule what a module declares of itself, where diffusers' modules do not
    declare it. `beside` are sites whose queries are text, audio or a pooled token: they have no
    place on the grid, even where their length happens to fit it.
    """

    title: str
    models: tuple[str, ...]
    grid: Callable[[Any], Reader] | None
    cross: str | None = None
    joint: str | None = None
    beside: str | None = None
    pyramid: bool = False  # deeper levels halve height and width
    # How diffusers' model compiles without a graph break: tried, attached and not, torch 2.13.
    compiles: tuple[str, ...] = ("whole",)

    def role(self, path: str) -> Role | None:
        """The role of a site by its path, or None where its module is to be asked."""
        if self.cross is not None and re.search(self.cross, path):
            return Role.CROSS
        if self.joint is not None and re.search(self.joint, path):
            return Role.JOINT
        return None

    def on_grid(self, path: str) -> bool:
        """Whether the site's queries are tokens of the grid."""
        return self.beside is None or re.search(self.beside, path) is None


# Where each family's text stands is read from its attention processor in diffusers 0.42.1.
FAMILIES: Final[tuple[Family, ...]] = (
    Family(
        "Wan",
        (
            "WanTransformer3DModel",
            "WanVACETransformer3DModel",
            "SkyReelsV2Transformer3DModel",
        ),
        grids.video,
        compiles=("whole", "regional"),
    ),
    Family(
        "HunyuanVideo",
        ("HunyuanVideoTransformer3DModel",),
        grids.text_after("encoder_hidden_states"),
        beside=r"^context_embedder\.",
        compiles=("whole", "regional"),
    ),
    Family(
        "HunyuanVideo 1.5",
        ("HunyuanVideo15Transformer3DModel",),
        grids.text_after("encoder_hidden_states", "encoder_hidden_states_2", "image_embeds"),
        beside=r"^context_embedder\.",
        compiles=("regional",),
    ),
    Family(
        "HunyuanImage",
        ("HunyuanImageTransformer2DModel",),
        grids.text_after("encoder_hidden_states", "encoder_hidden_states_2"),
        beside=r"^context_embedder\.",
        compiles=("whole", "regional"),
    ),
    Family(
        "LTX",
        ("LTXVideoTransformer3DModel",),
        grids.told,
        cross=r"\.attn2$",
        compiles=("whole", "regional"),
    ),
    Family(
        "LTX 2",
        ("LTX2VideoTransformer3DModel",),
        grids.told,
        cross=r"\.(audio_)?attn2$|_to_(video|audio)_attn$",
        beside=r"\.audio_attn[12]$|\.video_to_audio_attn$",
        compiles=("whole", "regional"),
    ),
    Family("CogVideoX", ("CogVideoXTransformer3DModel",), grids.cogvideox, joint=r"\.attn1$"),
    Family(
        "Mochi",
        ("MochiTransformer3DModel",),
        grids.mochi,
        joint=r"\.attn1$",
        beside=r"^time_embed\.",
    ),
    Family(
        "Flux",
        ("FluxTransformer2DModel", "Flux2Transformer2DModel"),
        grids.by_ids,
        compiles=("whole", "regional"),
    ),
    Family("Chroma", ("ChromaTransformer2DModel",), grids.by_ids, compiles=("whole", "regional")),
    Family(
        "QwenImage", ("QwenImageTransformer2DModel",), grids.qwen, compiles=("whole", "regional")
    ),
    Family(
        "SD3",
        ("SD3Transformer2DModel",),
        grids.text_after("encoder_hidden_states"),
    ),
    Family("Sana", ("SanaTransformer2DModel", "SanaVideoTransformer3DModel"), grids.video),
    Family(
        "Z-Image",
        ("ZImageTransformer2DModel",),
        grids.z_image,
        joint=r"^layers\.",
        beside=r"^(context|siglip)_refiner\.",
        compiles=("whole", "regional"),
    ),
    Family(
        "Lumina 2",
        ("Lumina2Transformer2DModel",),
        grids.lumina2,
        joint=r"^layers\.",
        beside=r"^context_refiner\.",
        compiles=(),
    ),
    Family(
        "HiDream",
        ("HiDreamImageTransformer2DModel",),
        grids.hidream,
        joint=r"\.attn1$",
        compiles=(),
    ),
    Family(
        "Kandinsky 5",
        ("Kandinsky5Transformer3DModel",),
        grids.kandinsky5,
        cross=r"\.cross_attention$",
        beside=r"^text_transformer_blocks\.",
        compiles=("whole", "regional"),
    ),
    Family("Cosmos", ("CosmosTransformer3DModel",), grids.video),
    Family("PixArt", ("PixArtTransformer2DModel",), grids.video),
    Family(
        "CogView 4",
        ("CogView4Transformer2DModel",),
        grids.text_before("encoder_hidden_states"),
        joint=r"\.attn1$",
    ),
    Family("AuraFlow", ("AuraFlowTransformer2DModel",), grids.auraflow),
    # Of these two VAEs, one attends along time as well as space, the other along time only.
    Family(
        "Cosmos VAE", ("AutoencoderKLCosmos",), None, beside=r"\.temp_attentions\.", compiles=()
    ),
    Family("Mochi VAE", ("AutoencoderKLMochi",), None, beside="", compiles=()),
    Family(
        "Stable Diffusion",
        ("UNet2DConditionModel",),
        grids.spatial,
        pyramid=True,
    ),
)
UNKNOWN: Final = Family("unknown", (), None)


def family_of(model: nn.Module) -> Family:
    """The row of a model's class (or of one that it extends), else UNKNOWN."""
    names = [base.__name__ for base in type(model).__mro__]
    return next((row for name in names for row in FAMILIES if name in row.models), UNKNOWN)


def markdown() -> str:
    """The rows as the documentation's table. Imports diffusers, to say how each is routed."""
    import diffusers

    head = ("family", "classes", "attends by", "token grid", "compiles")
    lines = [head, tuple("---" for _ in head)]
    for row in FAMILIES:
        lines.append(
            (
                row.title,
                ", ".join(f"`{name}`" for name in row.models),
                ", ".join(sorted({_attends_by(getattr(diffusers, name)) for name in row.models})),
                "known" if row.grid is not None else "not along time",
                ", ".join(row.compiles)
                or ("no: nor does it unattached" if row.grid else "not tried"),
            )
        )
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _attends_by(model: type) -> str:
    """Whether the processors in the model's module ask diffusers' dispatcher or torch itself."""
    classes = [value for value in vars(sys.modules[model.__module__]).values() if callable(value)]
    calls = (vars(kind).get("__call__") for kind in classes if isinstance(kind, type))
    names = {name for call in calls for name in getattr(call, "__code__", _NO_CODE).co_names}
    return "diffusers' dispatcher" if "dispatch_attention_fn" in names else "torch's function"


_NO_CODE: Final = (lambda: None).__code__
