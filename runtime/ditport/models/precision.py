"""Precision: the names users know, what a device can compute, and what is chosen unasked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ditport.errors import DtypeRefused
from ditport.options import one_of, setting

if TYPE_CHECKING:
    from polyattn.facts import PlatformFacts

NAMES: Final = ("auto", "float32", "float16", "bfloat16", "float64")
SHORT: Final = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp64": "float64"}
_parse = one_of(*NAMES, **SHORT)


@dataclass(frozen=True)
class PrecisionSettings:
    """The precision options. None: as `dtype` says."""

    dtype: str = setting(
        "--dtype",
        "--precision",
        default="auto",
        parse=_parse,
        metavar="DTYPE",
        help="auto (default), fp32, fp16 or bf16",
    )
    dit_precision: str | None = setting(
        "--dit-precision", default=None, parse=_parse, metavar="DTYPE", help="of the DiT alone"
    )
    vae_precision: str | None = setting(
        "--vae-precision", default=None, parse=_parse, metavar="DTYPE", help="of the VAE alone"
    )
    text_encoder_precisions: tuple[str, ...] = setting(
        "--text-encoder-precisions",
        default=(),
        parse=_parse,
        metavar="DTYPE",
        many=True,
        help="of the text encoders, in their order",
    )


@dataclass(frozen=True)
class PrecisionPlan:
    """A dtype for everything, and those of components that differ. Names are torch's."""

    default: str
    components: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    def of(self, component: str) -> str:
        """The dtype of one component."""
        return dict(self.components).get(component, self.default)


def plan(
    settings: PrecisionSettings,
    facts: PlatformFacts,
    device: str,
    components: tuple[str, ...],
) -> PrecisionPlan:
    """Choose dtypes. Raises DtypeRefused for one that the device cannot compute."""
    automatic = automatic_dtype(facts, device)

    def chosen(name: str | None, flag: str) -> str | None:
        if name is None:
            return None
        if name == "auto":
            return automatic
        _check(name, flag, device)
        return name

    default = chosen(settings.dtype, "--dtype") or automatic
    per_component: dict[str, str] = {}
    for component in components:
        if component.startswith(("transformer", "unet")):
            own = chosen(settings.dit_precision, "--dit-precision")
        elif component.startswith("vae"):
            own = chosen(settings.vae_precision, "--vae-precision")
        else:
            own = None
        if own:
            per_component[component] = own
    encoders = sorted(name for name in components if name.startswith("text_encoder"))
    if len(settings.text_encoder_precisions) > len(encoders):
        raise DtypeRefused(
            f"--text-encoder-precisions names {len(settings.text_encoder_precisions)} precisions.",
            f"The model has {len(encoders)} text encoders.",
        )
    for encoder, name in zip(encoders, settings.text_encoder_precisions, strict=False):
        per_component[encoder] = chosen(name, "--text-encoder-precisions") or default
    differing = {name: dtype for name, dtype in per_component.items() if dtype != default}
    notes = _notes({default, *differing.values()}, facts, device)
    return PrecisionPlan(default, tuple(sorted(differing.items())), notes)


def automatic_dtype(facts: PlatformFacts, device: str) -> str:
    """bfloat16 where the device computes it, float16 on older CUDA, float32 on a CPU."""
    if device.startswith("cuda"):
        capabilities = [d.compute_capability for d in facts.devices]
        old = any(capability and capability < (8, 0) for capability in capabilities)
        return "float16" if old else "bfloat16"
    return "bfloat16" if device == "mps" else "float32"


def _check(name: str, flag: str, device: str) -> None:
    if device == "mps" and name == "float64":
        raise DtypeRefused(
            f"{flag} {name} cannot be used on this Mac's GPU.",
            "Metal has no 64-bit floating point.",
            "Use fp32, or --device cpu.",
        )


def _notes(dtypes: set[str], facts: PlatformFacts, device: str) -> tuple[str, ...]:
    """Precisions that work and will disappoint."""
    notes = []
    if device == "cpu" and "float16" in dtypes:
        notes.append("float16 is emulated on a CPU and slower than float32 there.")
    for fact in facts.devices if device.startswith("cuda") else ():
        capability = fact.compute_capability
        if capability and capability < (8, 0) and "bfloat16" in dtypes:
            notes.append(f"{fact.name} ({fact.architecture}) emulates bfloat16; fp16 is faster.")
    return tuple(dict.fromkeys(notes))
