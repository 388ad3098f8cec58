"""Files: whole or not at all, the same bytes, playable, with their provenance."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import numpy
import pytest

from ditport.cli import main
from ditport.cli.inspect import read
from ditport.errors import DiskFull, FileUnreadable, OutputFailed, OutputRefused
from ditport.generation.request import Request
from ditport.media import video, writing
from ditport.media.formats import OutputSettings
from ditport.media.naming import plan_paths
from ditport.media.provenance import Provenance
from ditport.media.writing import check_space, check_writable, whole_or_nothing, write

PROVENANCE = Provenance(
    request={"prompt": 'a „red“ circle\n日本 "quoted"', "seed": 42},
    model={"name": "demo"},
    versions={"torch": "2"},
    platform={"device": "cpu"},
    attention={"attention": [{"component": "transformer", "calls": 12}]},
)


def request(**changes: Any) -> Request:
    values: dict[str, Any] = {
        "prompt": "a red circle",
        "negative_prompt": None,
        "images": (),
        "height": 64,
        "width": 48,
        "num_frames": 5,
        "fps": 8,
        "num_inference_steps": 2,
        "guidance_scale": 1.0,
        "seed": 42,
        "generator_device": "cpu",
    }
    return Request(**{**values, **changes})


def frames(count: int = 5, height: int = 64, width: int = 48) -> Any:
    ramp = numpy.linspace(0, 255, count * height * width * 3).reshape(count, height, width, 3)
    return ramp.astype("uint8")


@pytest.mark.parametrize("name", ["a.mp4", "a.png", "a.webp", "a.jpg"])
def test_provenance_comes_back_and_bytes_repeat(tmp_path: Path, name: str) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write(frames(), tmp_path / folder / name, request(), PROVENANCE, None)
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert read(tmp_path / "one" / name) == PROVENANCE


def test_png_is_lossless_and_readable_by_others(tmp_path: Path) -> None:
    from PIL import Image

    write(frames(1), tmp_path / "a.png", request(num_frames=1), PROVENANCE, None)
    with Image.open(tmp_path / "a.png") as image:
        assert (numpy.asarray(image) == frames(1)[0]).all()
        assert image.info["Description"] == PROVENANCE.prompt


def test_quality_changes_the_size(tmp_path: Path) -> None:
    noise = numpy.random.default_rng(0).integers(0, 255, (5, 64, 64, 3)).astype("uint8")
    for name in ("a.jpg", "a.webp", "a.mp4"):
        sizes = []
        for quality in (20, 95):
            write(noise, tmp_path / name, request(), PROVENANCE, quality)
            sizes.append((tmp_path / name).stat().st_size)
        assert sizes[0] < sizes[1], name


def test_video_is_what_browsers_play(tmp_path: Path) -> None:
    import av

    path = tmp_path / "a.mp4"
    write(frames(5, 64, 48), path, request(), PROVENANCE, None)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        context = stream.codec_context
        assert (context.name, stream.pix_fmt) == ("h264", "yuv420p")
        assert (context.width, context.height, stream.average_rate) == (48, 64, 8)
        assert (context.color_primaries, context.color_trc, context.colorspace) == (1, 1, 1)
        assert len(list(container.decode(stream))) == 5
    content = path.read_bytes()
    assert content.index(b"moov") < content.index(b"mdat")  # faststart


def test_video_keeps_its_colours(tmp_path: Path) -> None:
    import av

    red = numpy.zeros((3, 64, 64, 3), "uint8")
    red[..., 0] = 220
    red[..., 1] = 30
    write(red, tmp_path / "a.mp4", request(), PROVENANCE, None)
    with av.open(str(tmp_path / "a.mp4")) as container:
        frame = next(container.decode(video=0))
        luma = frame.to_ndarray()[:64]
        # BT.709, limited range: 16 + 219 * (0.2126 R + 0.7152 G + 0.0722 B)
        expected = 16 + 219 * (0.2126 * 220 + 0.7152 * 30) / 255
        assert abs(luma.mean() - expected) < 1.5


def test_odd_sizes_are_padded(tmp_path: Path) -> None:
    import av

    write(frames(2, 33, 47), tmp_path / "a.mp4", request(), PROVENANCE, None)
    with av.open(str(tmp_path / "a.mp4")) as container:
        context = container.streams.video[0].codec_context
        assert (context.width, context.height) == (48, 34)


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), ValueError("x")])
def test_nothing_is_left_when_something_breaks_off(tmp_path: Path, failure: Exception) -> None:
    (tmp_path / "a.txt").write_text("old")

    def broken() -> None:
        with whole_or_nothing(tmp_path / "a.txt") as temporary:
            temporary.write_text("half")
            raise failure

    with pytest.raises(type(failure)):
        broken()
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


def test_files_get_ordinary_permissions(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with whole_or_nothing(tmp_path / "a") as temporary:
            temporary.write_text("x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


@pytest.mark.parametrize(("number", "cause"), [(errno.ENOSPC, DiskFull), (errno.EIO, OutputFailed)])
def test_a_full_disk_leaves_nothing_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, cause: type[Exception]
) -> None:
    def full(frames: Any, path: Path, *_: Any) -> None:
        path.write_bytes(b"half")
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(video, "write", full)
    with pytest.raises(cause, match=r"a\.mp4") as failed:
        write(frames(), tmp_path / "a.mp4", request(), PROVENANCE, None)
    assert failed.value.exit_code == 1  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []


def test_room_is_estimated_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / "a.mp4"]
    check_space(paths, [request()])
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(writing.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DiskFull, match=r"0\.0 MB are free") as refused:
        check_space(paths, [request(height=4096, width=4096, num_frames=81)])
    assert refused.value.exit_code == 2


def test_folders_are_made_and_refused(tmp_path: Path) -> None:
    check_writable([tmp_path / "new" / "deep" / "a.png"])
    assert (tmp_path / "new" / "deep").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputRefused, match="Nothing can be written"):
        check_writable([tmp_path / "file" / "a.png"])
    (tmp_path / "b.png").mkdir()
    with pytest.raises(OutputRefused, match="is a folder"):
        check_writable([tmp_path / "b.png"])


def names(settings: OutputSettings, *requests: Request) -> list[str]:
    return [str(path) for path in plan_paths(settings, requests, "demo")]


def test_names_come_from_the_request() -> None:
    first = names(OutputSettings(), request())
    assert first == names(OutputSettings(), request())
    assert first[0].startswith("outputs/a_red_circle_seed42_")
    assert first[0].endswith(".mp4")
    assert first != names(OutputSettings(), request(num_inference_steps=3))
    assert names(OutputSettings(), request(num_frames=1))[0].endswith(".png")
    assert names(OutputSettings(), request(prompt="日本"))[0].startswith("outputs/output_seed42_")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"output_path": "x.mp4"}, "x.mp4"),
        ({"output_path": "o", "output_file_name": "n.mp4"}, "o/n.mp4"),
        ({"output_path": "o", "output_file_name": "n"}, "o/n.mp4"),
        ({"output_path": "o", "output_file_name": "v1.5 final"}, "o/v1.5 final.mp4"),
        ({"output_file_path": "p/q.mp4"}, "p/q.mp4"),
    ],
)
def test_names_that_are_given(settings: dict[str, str], expected: str) -> None:
    assert names(OutputSettings(**settings), request()) == [expected]


def test_several_outputs_of_one_name_are_numbered() -> None:
    given = names(OutputSettings(output_path="x.mp4"), request(), request(seed=43))
    assert given == ["x-1.mp4", "x-2.mp4"]
    own = names(OutputSettings(output_path="o"), request(file_name="a.mp4"), request())
    assert own[0] == "o/a.mp4"


@pytest.mark.parametrize("settings", [{"output_path": "a.gif"}, {"output_file_name": "a.avi"}])
def test_unknown_suffixes_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(OutputRefused, match="is no format that is known"):
        names(OutputSettings(**settings), request())


def test_pictures_hold_no_video() -> None:
    with pytest.raises(OutputRefused, match="cannot hold a video"):
        names(OutputSettings(output_path="a.png"), request())


def test_folders_with_dots_are_folders(tmp_path: Path) -> None:
    (tmp_path / "v1.5").mkdir()
    (path,) = names(OutputSettings(output_path=str(tmp_path / "v1.5")), request())
    assert Path(path).parent == tmp_path / "v1.5"


def test_inspect_prints_words_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    write(frames(1), tmp_path / "a.png", request(num_frames=1), PROVENANCE, None)
    assert main(["inspect", str(tmp_path / "a.png")]) == 0
    assert "transformer" in capsys.readouterr().out
    assert main(["inspect", "--json", str(tmp_path / "a.png")]) == 0
    assert json.loads(capsys.readouterr().out)["request"]["seed"] == 42


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("absent.png", None, "There is no file"),
        ("a.txt", b"x", "no format"),
        ("a.png", b"x", "cannot be read"),
        ("a.mp4", b"x", "cannot be read"),
    ],
)
def test_inspect_refuses(tmp_path: Path, name: str, content: bytes | None, told: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(FileUnreadable, match=told):
        read(tmp_path / name)


def test_files_of_others_hold_no_record(tmp_path: Path) -> None:
    from PIL import Image

    for name in ("a.png", "a.jpg"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
        with pytest.raises(FileUnreadable, match="holds no record"):
            read(tmp_path / name)
