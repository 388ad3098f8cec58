"""`ditport generate` from the outside: bytes, exit codes, what is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import SCRIPT, Run

SMALL = ["--height", "32", "--width", "32", "--num-frames", "5", "--num-inference-steps", "2"]


def words(small_wan: Path, *more: str) -> list[str]:
    base = ["generate", "--model-path", str(small_wan), "--device", "cpu"]
    return [*base, "--prompt", "a red circle", *SMALL, *more]


def left(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_the_same_request_gives_the_same_bytes(
    ditport: Run, small_wan: Path, tmp_path: Path
) -> None:
    for name in ("one.mp4", "two.mp4"):
        done = ditport(*words(small_wan, "--output-path", name, "--json"))
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["files"][0]["path"] == name
        assert result["attention"]["attention"]
    one = (tmp_path / "one.mp4").read_bytes()
    assert one == (tmp_path / "two.mp4").read_bytes()
    other = ditport(*words(small_wan, "--output-path", "three.mp4", "--seed", "43", "--quiet"))
    assert (other.returncode, other.stdout, other.stderr) == (0, "three.mp4\n", "")
    assert one != (tmp_path / "three.mp4").read_bytes()

    shown = ditport("inspect", "one.mp4", "--json")
    assert shown.returncode == 0
    assert json.loads(shown.stdout)["request"]["prompt"] == "a red circle"
    assert ditport("inspect", "absent.mp4").returncode == 2


def test_a_default_name_in_the_default_folder(
    ditport: Run, small_wan: Path, tmp_path: Path
) -> None:
    done = ditport(*words(small_wan, "--num-frames", "1"))
    assert done.returncode == 0, done.stderr
    (name,) = left(tmp_path / "outputs")
    assert name.startswith("a_red_circle_seed42_")
    assert name.endswith(".png")
    assert f"wrote outputs/{name}" in done.stderr
    assert "seconds:" in done.stdout
    assert "torch_sdpa" in done.stdout


def test_prompt_files_are_checked_whole_and_then_served(
    ditport: Run, small_wan: Path, tmp_path: Path
) -> None:
    prompts = tmp_path / "p.jsonl"
    good = '{"prompt": "a red circle", "output_file_name": "a.png"}\n'
    prompts.write_text(good + '{"prompt": "b", "height": 33}\n')
    common = ["generate", "--model-path", str(small_wan), "--size", "32x32", "--num-frames", "1"]
    common += ["--num-inference-steps", "1", "--prompt-file", "p.jsonl", "--output-path", "out"]
    done = ditport(*common)
    assert done.returncode == 2
    assert "p.jsonl, line 2" in done.stderr
    assert not (tmp_path / "out").exists()
    prompts.write_text(good + '{"prompt": "b", "output_file_name": "b.webp"}\n')
    assert ditport(*common).returncode == 0
    assert left(tmp_path / "out") == ["a.png", "b.webp"]


def test_a_request_that_cannot_be_served_by_attention(ditport: Run, small_wan: Path) -> None:
    done = ditport(*words(small_wan, "--attention-backend", "sage_attn"))
    assert done.returncode == 2
    assert "sage_attn" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_substitution_is_told_and_can_be_refused(ditport: Run, small_wan: Path) -> None:
    done = ditport(*words(small_wan, "--attention-backend", "fa", "--json"))
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["attention"]["attention"]
    (row,) = [r for r in rows if r["component"] == "transformer" and r["role"] == "self"]
    assert (row["requested"], row["backend"]) == ("fa", "torch_sdpa")
    assert row["reason"]
    done = ditport(*words(small_wan, "--attention-backend", "fa", "--on-substitution", "error"))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def interrupted(
    command: list[str], cwd: Path, environ: dict[str, str], number: int, *, after: str
) -> subprocess.CompletedProcess[str]:
    """Send a signal once a line with `after` in it was shown."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Ctrl-C reaches a foreground process; a test runner in the background may have it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    seen = ""
    while after not in seen:
        line = process.stderr.readline()
        assert line, seen
        seen += line
    time.sleep(0.2)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(command, process.returncode, out, seen + err)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("after", ["loading", "generating"])
def test_interruption_leaves_nothing(
    small_wan: Path, tmp_path: Path, environ: dict[str, str], number: int, code: int, after: str
) -> None:
    command = [SCRIPT, *words(small_wan, "--output-path", "out/a.mp4")]
    # Later options win: so many steps that the signal comes in time.
    command += ["--num-inference-steps", "500"]
    done = interrupted(command, tmp_path, environ, number, after=after)
    assert done.returncode == code, done.stderr
    assert "interrupted" in done.stderr
    assert "Traceback" not in done.stderr
    assert left(tmp_path / "out") == []


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a small file system")
def test_a_disk_that_is_too_small_is_seen_before(
    ditport: Run, small_wan: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("mounting needs root")
    try:
        done = ditport(*words(small_wan, "--output-path", "disk/a.mp4", "--height", "512"))
        assert done.returncode == 2  # seen before the model is loaded
        assert "There is not enough room" in done.stderr
        assert left(disk) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_lora_changes_the_output_by_its_weight(
    ditport: Run, small_wan: Path, tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import save_file

    width, rank = 24, 2
    target = "transformer.blocks.0.attn1.to_q"
    torch.manual_seed(0)
    save_file(
        {
            f"{target}.lora_A.weight": torch.randn(rank, width),
            f"{target}.lora_B.weight": torch.randn(width, rank) * 5,
        },
        tmp_path / "style.safetensors",
    )
    options = {
        "base": [],
        "off": ["--lora-path", "style.safetensors", "--lora-scale", "0"],
        "on": ["--lora-path", "style.safetensors", "--lora-nickname", "style"],
    }
    from PIL import Image

    pictures = {}
    for name, more in options.items():
        done = ditport(
            *words(small_wan, "--num-frames", "1", "--output-path", f"{name}.png", *more)
        )
        assert done.returncode == 0, done.stderr
        with Image.open(tmp_path / f"{name}.png") as image:
            pictures[name] = image.tobytes()
    assert pictures["off"] == pictures["base"] != pictures["on"]
    shown = json.loads(ditport("inspect", "on.png", "--json").stdout)
    assert shown["model"]["loras"] == [{"path": "style.safetensors", "name": "style", "scale": 1.0}]


def test_out_of_memory_tells_what_helps(
    small_wan: Path, tmp_path: Path, environ: dict[str, str]
) -> None:
    if sys.platform != "linux":
        pytest.skip("limits memory by RLIMIT_AS")
    import resource

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))

    sizes = ["--height", "16384", "--width", "16384", "--num-frames", "81"]
    done = subprocess.run(
        [SCRIPT, *words(small_wan, *sizes, "--no-save-output")],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        preexec_fn=limited,
    )
    assert done.returncode == 3, done.stderr
    assert "Out of host memory" in done.stderr
    assert "16384x16384, 81 frames" in done.stderr
    assert "--dtype bf16" in done.stderr
    assert "Traceback" not in done.stderr


def test_pipes_that_close_early(small_wan: Path, tmp_path: Path, environ: dict[str, str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [SCRIPT, *words(small_wan, "--output-path", "a.mp4")],
        cwd=tmp_path,
        env=environ,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=600,
    )
    os.close(write)
    assert "Traceback" not in done.stderr
    assert (tmp_path / "a.mp4").is_file()
