"""PNG, WebP and JPEG with provenance, by Pillow."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, Final

from ditport.media.formats import Format
from ditport.media.provenance import KEY, Provenance

EXIF_IFD: Final = 0x8769
USER_COMMENT: Final = 0x9286
IMAGE_DESCRIPTION: Final = 0x010E
SOFTWARE: Final = 0x0131
ASCII: Final = b"ASCII\x00\x00\x00"
DEFAULT_QUALITY: Final = 90


def write(
    frame: Any, file: BinaryIO, container: Format, provenance: Provenance, quality: int | None
) -> None:
    """Encode one RGB frame (a uint8 array [height, width, 3])."""
    from PIL import Image, PngImagePlugin

    image = Image.fromarray(frame)
    if container == "png":
        chunks = PngImagePlugin.PngInfo()
        chunks.add_itxt("Description", provenance.prompt)
        chunks.add_text("Software", "ditport")
        chunks.add_text(KEY, provenance.to_json())
        image.save(file, format="PNG", pnginfo=chunks)
        return
    exif = Image.Exif()
    exif[IMAGE_DESCRIPTION] = provenance.prompt
    exif[SOFTWARE] = "ditport"
    exif.get_ifd(EXIF_IFD)[USER_COMMENT] = ASCII + provenance.to_json().encode("ascii")
    encoded = exif.tobytes()
    chosen = DEFAULT_QUALITY if quality is None else quality
    if container == "webp":
        lossless = quality == 100
        image.save(file, format="WEBP", quality=chosen, method=4, lossless=lossless, exif=encoded)
    else:
        image.save(file, format="JPEG", quality=max(1, chosen), subsampling=0, exif=encoded)


def read(path: Path) -> Provenance | None:
    """The provenance of an image file. Raises OSError for what Pillow cannot read."""
    from PIL import Image

    with Image.open(path) as image:
        if chunk := image.info.get(KEY):
            return Provenance.from_json(str(chunk))
        comment = image.getexif().get_ifd(EXIF_IFD).get(USER_COMMENT, b"")
    if isinstance(comment, bytes) and comment.startswith(ASCII):
        return Provenance.from_json(comment[len(ASCII) :].decode("ascii", "replace"))
    return None
