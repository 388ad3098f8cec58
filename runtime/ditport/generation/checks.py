"""Refusals before a model loads: what a request asks, held against what the model can do."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ditport.errors import DitportError, InputRefused, NotInThisVersion, SizeRefused, UsageError
from ditport.generation.request import EXTRAS, Request
from ditport.models.description import ModelDescription
from ditport.models.geometry import Geometry, geometry
from ditport.options import options

SIDES = ("height", "width")


def check(request: Request, model: ModelDescription) -> None:
    """Raise the first reason for which the model cannot serve a request."""
    if not request.prompt and model.accepts("prompt"):
        raise UsageError("There is nothing to generate.", "", "Give --prompt or --prompt-file.")
    _check_size(request, geometry(model), model)
    _check_accepted(request, model)
    _check_images(request, model)


def _check_size(request: Request, space: Geometry, model: ModelDescription) -> None:
    asked = {side: getattr(request, side) for side in SIDES}
    wrong = {side: n for side, n in asked.items() if n is not None and not space.takes(n)}
    if wrong:
        better = {
            side: space.nearest_length(n) if n is not None else None for side, n in asked.items()
        }
        remedy = " ".join(f"--{side} {n}" for side, n in better.items() if n is not None)
        raise SizeRefused(
            f"{model.source.name} cannot make {_size(request)}.",
            f"Height and width must be multiples of {space.multiple} for its VAE and patches, and "
            f"{' and '.join(f'{side} {n}' for side, n in wrong.items())} "
            f"{'is' if len(wrong) == 1 else 'are'} not.",
            f"The nearest is {remedy}.",
        )
    if request.num_frames is not None and not space.takes_frames(request.num_frames):
        raise SizeRefused(
            f"{model.source.name} cannot make {request.num_frames} frames.",
            f"Its VAE packs {space.stride} frames after the first one into one, so the number "
            f"must be 1 more than a multiple of {space.stride}.",
            f"The nearest is --num-frames {space.nearest_frames(request.num_frames)}.",
        )


def _size(request: Request) -> str:
    return f"{request.width or '?'}x{request.height or '?'}"


def _check_accepted(request: Request, model: ModelDescription) -> None:
    if request.is_video and not model.accepts("num_frames"):
        raise NotInThisVersion(
            f"{model.source.name} makes images, not {request.num_frames} frames.",
            f"{model.pipeline} has no num_frames.",
            "Leave --num-frames out.",
        )
    given = dict(request.extra)
    unknown = [name for name in given if not model.accepts(name)]
    if request.negative_prompt and not model.accepts("negative_prompt"):
        unknown.append("negative_prompt")
    if unknown:
        flag = "--" + unknown[0].replace("_", "-") if unknown[0] in EXTRAS else unknown[0]
        if unknown[0] == "negative_prompt":
            flag = "--negative-prompt"
        raise UsageError(
            f"{model.source.name} takes no {flag}.",
            f"{model.pipeline} has no parameter {unknown[0]}.",
            "Leave it out.",
        )


def _check_images(request: Request, model: ModelDescription) -> None:
    takes = model.accepts("image")
    if request.images and not takes:
        raise InputRefused(
            f"{model.source.name} takes no input image.",
            f"{model.pipeline} has no image parameter.",
            "Leave --image out, or give an image-to-video model.",
        )
    needs = model.signature is not None and takes and _image_is_required(model)
    if needs and not request.images:
        raise InputRefused(
            f"{model.source.name} needs an input image.",
            f"{model.pipeline} starts from one.",
            "Give --image FILE.",
        )
    for image in request.images:
        check_image(image)


def _image_is_required(model: ModelDescription) -> bool:
    assert model.signature is not None
    parameters = model.signature.parameters or {}
    return bool(parameters) and next(iter(parameters)) == "image"


def check_image(name: str) -> None:
    """Raise InputRefused for an image that cannot be decoded."""
    from PIL import Image, UnidentifiedImageError

    path = Path(name).expanduser()
    try:
        with Image.open(path) as image:
            image.load()
    except UnidentifiedImageError:
        raise InputRefused(f"{name} is no image that can be read.", _first_bytes(path)) from None
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputRefused(f"The image {name} cannot be read.", f"{reason}.") from None


def _first_bytes(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(16)
    return "It is empty." if not head else f"It begins with {head!r}."


def vocabulary_notes(requests: Iterable[Request], model: ModelDescription) -> tuple[str, ...]:
    """What to tell someone whose prompt holds words that a small model was never taught."""
    unknown: dict[str, None] = {}
    for request in requests:
        unknown.update(dict.fromkeys(model.defaults.unknown_words(request.prompt)))
    if not unknown:
        return ()
    words = ", ".join(list(unknown)[:8])
    told = model.defaults.note or "It draws what it knows of the rest."
    return (f"{model.source.name} does not know the words {words}. {told}",)


def option_names(settings: type) -> tuple[str, ...]:
    """The first flag of every option of a settings class."""
    return tuple(option.flags[0] for option in options(settings).values())


def first_problem(requests: Iterable[tuple[str, Request]], model: ModelDescription) -> None:
    """Check every request; the error of one from a prompt file begins with its line."""
    for where, request in requests:
        try:
            check(request, model)
        except DitportError as error:
            if where:
                raise type(error)(f"{where}: {error.cause}", error.evidence, error.remedy) from None
            raise
