"""What to generate: the sampling options, and a Request with nothing left open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ditport.options import nonempty, one_of, real, setting, text, whole

if TYPE_CHECKING:
    from ditport.models.description import ModelDescription

DEFAULT_SEED: Final = 42
DEFAULT_FPS: Final = 24  # where neither the model nor the pipeline says; sglang's
SEEDS: Final = 2**63


def size(value: object) -> tuple[int, int]:
    """WIDTHxHEIGHT."""
    left, times, right = str(value).lower().partition("x")
    if not (times and left.isdigit() and right.isdigit() and int(left) and int(right)):
        raise ValueError(f"must be WIDTHxHEIGHT such as 1280x720, not {value!r}")
    return int(left), int(right)


@dataclass(frozen=True)
class SamplingSettings:
    """The sampling options. None: the model's own default, else the pipeline's."""

    prompt: str | None = setting(
        "--prompt", default=None, parse=text, metavar="TEXT", help="what to show"
    )
    prompt_file: str | None = setting(
        "--prompt-file",
        "--prompt-file-path",
        default=None,
        parse=nonempty,
        metavar="FILE",
        help="one prompt a line, or JSON lines with settings of their own, such as "
        '{"prompt": "...", "seed": 7}',
    )
    negative_prompt: str | None = setting(
        "--negative-prompt", default=None, parse=text, metavar="TEXT", help="what to avoid"
    )
    image_path: tuple[str, ...] = setting(
        "--image-path",
        "--image",
        default=(),
        parse=nonempty,
        metavar="FILE",
        many=True,
        help="input image or images, for pipelines that take them",
    )
    height: int | None = setting(
        "--height", default=None, parse=whole(1), metavar="PIXELS", help="height"
    )
    width: int | None = setting(
        "--width", default=None, parse=whole(1), metavar="PIXELS", help="width"
    )
    size: tuple[int, int] | None = setting(
        "--size",
        "--output-size",
        default=None,
        parse=size,
        metavar="WxH",
        constants=(
            ("--720p", (1280, 720)),
            ("--1080p", (1920, 1080)),
            ("--2k", (2560, 1440)),
            ("--4k", (3840, 2160)),
        ),
        help="width and height at once; also --720p, --1080p, --2k, --4k",
    )
    num_frames: int | None = setting(
        "--num-frames", default=None, parse=whole(1), metavar="N", help="frames; 1 is an image"
    )
    fps: int | None = setting(
        "--fps", default=None, parse=whole(1, 240), metavar="N", help="frames a second"
    )
    num_inference_steps: int | None = setting(
        "--num-inference-steps", default=None, parse=whole(1), metavar="N", help="denoising steps"
    )
    guidance_scale: float | None = setting(
        "--guidance-scale",
        default=None,
        parse=real(0),
        metavar="X",
        help="how strongly the prompt is followed",
    )
    guidance_scale_2: float | None = setting(
        "--guidance-scale-2",
        default=None,
        parse=real(0),
        metavar="X",
        hidden=True,
        help="guidance of a second denoiser",
    )
    true_cfg_scale: float | None = setting(
        "--true-cfg-scale",
        default=None,
        parse=real(0),
        metavar="X",
        hidden=True,
        help="classifier-free guidance of guidance-distilled models",
    )
    guidance_rescale: float | None = setting(
        "--guidance-rescale",
        default=None,
        parse=real(0),
        metavar="X",
        hidden=True,
        help="guidance rescale",
    )
    strength: float | None = setting(
        "--strength",
        default=None,
        parse=real(0, 1),
        metavar="X",
        help="how far an input image is changed, 0 to 1",
    )
    max_sequence_length: int | None = setting(
        "--max-sequence-length",
        default=None,
        parse=whole(1),
        metavar="N",
        hidden=True,
        help="text tokens",
    )
    seed: int = setting(
        "--seed",
        default=DEFAULT_SEED,
        parse=whole(0, SEEDS - 1),
        metavar="N",
        help=f"default {DEFAULT_SEED}; the same seed gives the same file",
    )
    generator_device: str = setting(
        "--generator-device",
        default="cpu",
        parse=one_of("cpu", "device", cuda="device"),
        metavar="cpu|device",
        help="where noise is drawn; cpu (default) is the same on every machine",
    )
    num_outputs_per_prompt: int = setting(
        "--num-outputs-per-prompt",
        default=1,
        parse=whole(1, 1000),
        metavar="N",
        help="outputs of each prompt, with seeds that count up from --seed",
    )
    diffusers_kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)


# Optional numbers that go to the pipeline under their own names.
EXTRAS: Final = (
    "guidance_scale_2",
    "true_cfg_scale",
    "guidance_rescale",
    "strength",
    "max_sequence_length",
)


@dataclass(frozen=True)
class Request:
    """One output to make. None: the pipeline decides, and the result tells what it was."""

    prompt: str
    negative_prompt: str | None
    images: tuple[str, ...]
    height: int | None
    width: int | None
    num_frames: int | None  # None: the pipeline makes images
    fps: int
    num_inference_steps: int | None
    guidance_scale: float | None
    seed: int
    generator_device: str
    extra: tuple[tuple[str, Any], ...] = ()
    output: int = 0  # which of the outputs of one prompt
    file_name: str | None = None  # a name that its line of the prompt file gives

    @property
    def is_video(self) -> bool:
        """Whether the output moves."""
        return (self.num_frames or 1) > 1

    def to_json(self) -> dict[str, Any]:
        """The settings that reproduce the output."""
        values: dict[str, Any] = {
            "prompt": self.prompt,
            "negative_prompt": self.negative_prompt,
            "images": list(self.images) or None,
            "height": self.height,
            "width": self.width,
            "num_frames": self.num_frames,
            "fps": self.fps if self.is_video else None,
            "num_inference_steps": self.num_inference_steps,
            "guidance_scale": self.guidance_scale,
            "seed": self.seed,
            "generator_device": self.generator_device,
            **dict(self.extra),
        }
        return {name: value for name, value in values.items() if value is not None}


def resolve(
    settings: SamplingSettings, model: ModelDescription, file_name: str | None = None
) -> tuple[Request, ...]:
    """The requests of one prompt: what was asked, else the model's default, else the pipeline's."""
    advised, signature = model.defaults, model.signature

    def chosen(name: str, asked: object, advice: object = None) -> Any:
        if asked is not None:
            return asked
        if advice is not None and model.accepts(name):
            return advice
        return signature.default(name) if signature else None

    width, height = settings.size or (None, None)
    frames = chosen("num_frames", settings.num_frames, advised.num_frames)
    rate = "frame_rate" if model.accepts("frame_rate") else "fps"
    fps = settings.fps or advised.fps or (signature.default(rate) if signature else None)
    extra = {name: getattr(settings, name) for name in EXTRAS}
    extra = {name: value for name, value in extra.items() if value is not None}
    return tuple(
        Request(
            prompt=settings.prompt or "",
            negative_prompt=settings.negative_prompt
            if settings.negative_prompt is not None
            else advised.negative_prompt,
            images=settings.image_path,
            height=chosen("height", settings.height or height, advised.height),
            width=chosen("width", settings.width or width, advised.width),
            num_frames=frames if model.accepts("num_frames") else settings.num_frames,
            fps=int(fps) if isinstance(fps, (int, float)) else DEFAULT_FPS,
            num_inference_steps=chosen(
                "num_inference_steps", settings.num_inference_steps, advised.num_inference_steps
            ),
            guidance_scale=chosen(
                "guidance_scale", settings.guidance_scale, advised.guidance_scale
            ),
            seed=(settings.seed + output) % SEEDS,
            generator_device=settings.generator_device,
            extra=tuple(sorted({**extra, **settings.diffusers_kwargs}.items())),
            output=output,
            file_name=file_name,
        )
        for output in range(settings.num_outputs_per_prompt)
    )
