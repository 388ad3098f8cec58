"""`ditport sta`: search a model once, resume, tune, generate with what came out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ditport.cli import main


def test_search_tune_and_generate(
    small_wan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    losses, strategy = str(tmp_path / "losses"), str(tmp_path / "strategy.json")
    what = [
        "--model-path",
        str(small_wan),
        "--prompt",
        "a",
        "--quiet",
        "--num-inference-steps",
        "2",
    ]
    size = ["--height", "32", "--width", "32", "--num-frames", "5"]
    search = ["sta", "search", "--losses", losses, "--tile-size", "1x1x1", *what, *size]
    assert main([*search, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["l2"]) == 2
    (written,) = Path(losses).iterdir()
    changed = written.stat().st_mtime_ns
    assert main(search) == 0  # it is there already
    assert written.stat().st_mtime_ns == changed
    capsys.readouterr()

    tune = ["sta", "tune", "--losses", losses, "--strategy", strategy, "--skip-time-steps", "1"]
    assert main([*tune, "--json"]) == 0
    tuned = json.loads(capsys.readouterr().out)
    assert tuned["steps"] == 2
    assert 0 < tuned["density"] < 1

    config = json.dumps({"mask_strategy_file_path": strategy, "tile_size": [1, 1, 1]})
    output = str(tmp_path / "out.mp4")
    sparse = ["--attention-backend", "sta", "--attention-backend-config", config]
    assert (
        main(
            ["generate", *what[:-3], *what[-2:], *size, *sparse, "--json", "--output-path", output]
        )
        == 0
    )
    rows = json.loads(capsys.readouterr().out)["attention"]["attention"]
    assert "sta" in {row["implementation"] for row in rows}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tune", "--losses", "nowhere"], "--strategy"),
        (["tune", "--losses", "nowhere", "--strategy", "s.json"], "holds no losses_"),
        (["tune", "--losses", "x", "--strategy", "s", "--target-density", "2"], "at most 1"),
        (["search", "--losses", "x", "--tile-size", "3"], "takes 3 whole numbers"),
        (["look", "--losses", "x"], "look"),
        (["search"], "--losses"),
    ],
)
def test_mistakes_are_named(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sta", *words]) == 2
    assert message in capsys.readouterr().err
