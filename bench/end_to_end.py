"""`ditport generate` on the demo, whole process, over the shortest plain diffusers script.

    python -m bench.end_to_end [--json FILE] [--repeats N] [--threads N]

Both make the same video of the same model, prompt, seed, size and steps and write an H.264 MP4.
The aim is a ratio of 0.7, by importing only what the model needs.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import tempfile
from pathlib import Path

from bench.processes import least, report

AIM = 0.7
PROMPT = "a red circle moving right on a black background"
MODEL = Path(__file__).parent.parent / "runtime" / "ditport" / "demo" / "model"

# What a person would write: nothing is imported that the job does not need. PyAV writes the
# video, since diffusers' export_to_video needs a package that is not installed here.
PLAIN = """
import sys
import av
import torch
from diffusers import WanPipeline

model, prompt, out = sys.argv[1:]
pipeline = WanPipeline.from_pretrained(model)
frames = pipeline(prompt, height=64, width=64, num_frames=13, num_inference_steps=8,
                  guidance_scale=2.0, generator=torch.Generator().manual_seed(42)).frames[0]
with av.open(out, "w") as container:
    stream = container.add_stream("libx264", rate=8)
    stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
    for frame in (frames * 255).round().astype("uint8"):
        container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
    container.mux(stream.encode())
"""


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="OMP_NUM_THREADS of both")
    args = parser.parse_args()
    script = str(Path(sys.executable).with_name("ditport"))
    with tempfile.TemporaryDirectory() as folder:
        commands = {
            "plain diffusers": [
                *(sys.executable, "-c", PLAIN),
                *(str(MODEL), PROMPT, f"{folder}/plain.mp4"),
            ],
            "ditport generate": [
                *(script, "generate", "--prompt", PROMPT, "--quiet"),
                *("--output-path", f"{folder}/ditport.mp4"),
            ],
        }
        environ = {**os.environ, "OMP_NUM_THREADS": str(args.threads), "HF_HUB_OFFLINE": "1"}
        times = least(commands, args.repeats, environ)
    plain, ours = times["plain diffusers"], times["ditport generate"]
    ratios = {"wall": ours.wall / plain.wall, "cpu": ours.cpu / plain.cpu}
    rows = [f"{name:18} wall {t.wall:5.2f} s   cpu {t.cpu:5.2f} s" for name, t in times.items()]
    rows.append(
        f"{'ratio':18} wall {ratios['wall']:5.2f}     cpu {ratios['cpu']:5.2f}     (aim {AIM})"
    )
    result: dict[str, object] = {
        "seconds": {name: dataclasses.asdict(t) for name, t in times.items()},
        "ratio": ratios,
        "aim": AIM,
        "repeats": args.repeats,
        "threads": args.threads,
    }
    report("end to end, least of repeats", result, "\n".join(rows), args.json)


if __name__ == "__main__":
    main()
