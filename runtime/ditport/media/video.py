"""MP4 that browsers play: H.264, yuv420p, even size, BT.709 tags, index in front. By PyAV."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ditport.media.provenance import Provenance

# Output depends on the number of encoder threads, so it is the same on every machine.
THREADS: Final = 4
BT709: Final = 1  # in the tables of ISO/IEC 23091-2: primaries, transfer and matrix alike
LIMITED: Final = 1  # FFmpeg's AVCOL_RANGE_MPEG
DEFAULT_CRF: Final = 17


def crf(quality: int | None) -> int:
    """The encoder's rate factor for a quality from 0 to 100: 100 is 10, 0 is 40."""
    return DEFAULT_CRF if quality is None else round(40 - quality * 0.3)


def write(frames: Any, path: Path, fps: int, provenance: Provenance, quality: int | None) -> None:
    """Encode RGB frames (a uint8 array [frames, height, width, 3])."""
    import av
    import numpy
    from av.video.reformatter import ColorRange, Colorspace

    height, width = frames.shape[1:3]
    odd = ((0, 0), (0, height % 2), (0, width % 2), (0, 0))
    frames = numpy.pad(frames, odd, mode="edge") if height % 2 or width % 2 else frames
    # bitexact leaves out the time of writing and the library's version.
    flags = {"movflags": "+faststart", "fflags": "+bitexact"}
    with av.open(str(path), "w", format="mp4", options=flags) as container:
        container.metadata["title"] = provenance.prompt
        container.metadata["comment"] = provenance.to_json()
        stream = container.add_stream("libx264", rate=fps)
        stream.width, stream.height = frames.shape[2], frames.shape[1]
        stream.pix_fmt = "yuv420p"
        stream.options = {
            "crf": str(crf(quality)),
            "preset": "medium",
            "threads": str(THREADS),
            "flags": "+bitexact",
        }
        context = stream.codec_context
        context.color_primaries = context.color_trc = context.colorspace = BT709
        context.color_range = LIMITED
        for image in frames:
            frame = av.VideoFrame.from_ndarray(numpy.ascontiguousarray(image), format="rgb24")
            frame = frame.reformat(
                format="yuv420p",
                src_color_range=ColorRange.JPEG,
                dst_color_range=ColorRange.MPEG,
                dst_colorspace=Colorspace.ITU709,
            )
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def read(path: Path) -> Provenance | None:
    """The provenance of a video file. Raises OSError for what FFmpeg cannot read."""
    import av

    with av.open(str(path)) as container:
        return Provenance.from_json(container.metadata.get("comment", ""))
