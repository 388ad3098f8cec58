"""File formats and the options that say what is written where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ditport.options import flag, nonempty, one_of, setting, whole

Format = Literal["png", "webp", "jpeg", "mp4"]
SUFFIXES: Final[dict[str, Format]] = {
    ".png": "png",
    ".webp": "webp",
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".mp4": "mp4",
}
QUALITIES: Final = {"maximum": 100, "high": 90, "medium": 75, "low": 50}


@dataclass(frozen=True)
class OutputSettings:
    """The output options."""

    output_path: str = setting(
        "--output-path",
        "--output",
        "-o",
        default="outputs",
        parse=nonempty,
        metavar="PATH",
        help="a folder, or a file whose suffix decides: .png .webp .jpg .mp4 (default outputs/)",
    )
    output_file_name: str | None = setting(
        "--output-file-name",
        default=None,
        parse=nonempty,
        metavar="NAME",
        help="file name in that folder (default: from prompt and settings)",
    )
    output_file_path: str | None = setting(
        "--output-file-path",
        default=None,
        parse=nonempty,
        metavar="FILE",
        help="the whole path at once",
    )
    save_output: bool = setting(
        "--save-output",
        default=True,
        parse=flag,
        switch=True,
        constants=(("--no-save-output", False),),
        help="write the file (default true)",
    )
    output_quality: str | None = setting(
        "--output-quality",
        default=None,
        parse=one_of(*QUALITIES, "default"),
        metavar="|".join(QUALITIES),
        help="of JPEG, WebP and MP4",
    )
    output_compression: int | None = setting(
        "--output-compression",
        default=None,
        parse=whole(0, 100),
        metavar="0-100",
        hidden=True,
        help="quality as a number, 100 best; wins over --output-quality",
    )

    @property
    def quality(self) -> int | None:
        """Quality as a number, 100 best, or None for the format's default."""
        if self.output_compression is not None:
            return self.output_compression
        return QUALITIES.get(self.output_quality or "")


def format_of(path: Path) -> Format | None:
    """The format that a suffix decides."""
    return SUFFIXES.get(path.suffix.lower())
