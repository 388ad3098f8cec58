"""What is odd about where ditport runs: the image's facts held against the device's."""

from __future__ import annotations

from polyattn.facts import PlatformFacts
from polyattn.vocabulary import PlatformName

WANTED = {
    "cuda": (PlatformName.CUDA, "an NVIDIA GPU", "--gpus all"),
    "cuda12": (PlatformName.CUDA, "an NVIDIA GPU", "--gpus all"),
    "rocm": (PlatformName.ROCM, "an AMD GPU", "--device=/dev/kfd --device=/dev/dri"),
}


def startup_notes(facts: PlatformFacts) -> tuple[str, ...]:
    """Sentences for the user: an accelerator's image without its accelerator, unusable devices."""
    notes = [f"{note[0].upper()}{note[1:].rstrip('.')}." for note in facts.notes]
    wanted = WANTED.get(facts.image or "")
    if wanted and facts.platform is not wanted[0]:
        _, device, option = wanted
        notes.insert(
            0,
            f"This is the {facts.image} image and {device} is not visible in the container, so "
            f"the CPU is used. Start it with `{option}`.",
        )
    return tuple(notes)
