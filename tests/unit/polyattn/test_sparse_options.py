"""Options and mask strategy files: read once, refused precisely."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from polyattn import capabilities
from polyattn.errors import InvalidOptions
from polyattn.facts import PlatformFacts
from polyattn.preferences import preferences_from_options
from polyattn.selector import check_preferences
from polyattn.sparse import mask_strategy
from polyattn.sparse.options import SlidingTileOptions, VideoSparseOptions, VMoBAOptions, read


def test_rows_list_the_options_that_the_dataclasses_own() -> None:
    assert "tile_size" in capabilities.row("sta").options
    assert capabilities.row("vsa").options == ("sparsity", "topk_rule", "coarse")
    assert len(capabilities.row("vmoba").options) == 14


@pytest.mark.parametrize("given", [(4, 8, 8), [4, 8, 8], "4x8x8"])
def test_sizes_are_a_list_or_words(given: object) -> None:
    assert read(SlidingTileOptions, {"tile_size": given}).tile_size == (4, 8, 8)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (SlidingTileOptions, {"tile_size": 4}, "tile_size of sliding_tile_attn takes 3 whole"),
        (SlidingTileOptions, {"tile_size": (4, 0, 8)}, r"at least 1, not \(4, 0, 8\)"),
        (SlidingTileOptions, {"tile_size": (4, True, 8)}, "at least 1"),
        (SlidingTileOptions, {"sta_mode": "STA_searching"}, "ditport sta search"),
        (SlidingTileOptions, {"skip_time_steps": -1}, "at least 0, not -1"),
        (
            SlidingTileOptions,
            {"window": (1, 1, 1), "mask_strategy_file_path": "x.json"},
            "not both",
        ),
        (VideoSparseOptions, {"sparsity": 1.5}, "from 0 to 1, not 1.5"),
        (VideoSparseOptions, {"sparsity": "much"}, "from 0 to 1"),
        (VideoSparseOptions, {"topk_rule": "cubes"}, "blocks or tokens, not 'cubes'"),
        (VMoBAOptions, {"st_chunk_size": (4, 6)}, "3 whole numbers"),
        (VMoBAOptions, {"moba_select_mode": "topk", "moba_threshold_type": "block"}, "block only"),
        (VMoBAOptions, {"temporal_layer": 0, "spatial_layer": 0, "st_layer": 0}, "all 0"),
    ],
)
def test_wrong_values_are_named(kind: type, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptions, match=message):
        read(kind, given)


def test_wrong_options_are_refused_before_a_model_loads(cpu: PlatformFacts, tmp_path: Path) -> None:
    def check(backend: str, config: str) -> None:
        asked = preferences_from_options(backend, attention_backend_config=config)
        check_preferences(asked, cpu)

    with pytest.raises(InvalidOptions, match="sparsity"):
        check("video_sparse_attn", "sparsity=2")
    with pytest.raises(InvalidOptions, match="cannot be read: No such file"):
        check("sliding_tile_attn", f"mask_strategy_file_path={tmp_path / 'none.json'}")
    check("vmoba_attn", '{"st_chunk_size": [2, 2, 2]}')


def strategy(steps: int = 2, layers: int = 3, heads: int = 2) -> dict[str, list[int]]:
    return {
        f"{step}_{layer}_{head}": [1, step + 1, head + 1]
        for step in range(steps)
        for layer in range(layers)
        for head in range(heads)
    }


def test_a_mask_strategy_is_read_whole_and_written_back(tmp_path: Path) -> None:
    file = tmp_path / "strategy.json"
    file.write_text(json.dumps(strategy()))
    found = mask_strategy.load(file)
    assert (found.steps, found.layers, found.heads) == (2, 3, 2)
    assert found.windows[1][2] == ((1, 2, 1), (1, 2, 2))
    assert found.to_json() == strategy()
    assert mask_strategy.load(file) is found
    file.write_text(json.dumps(strategy(steps=12)))
    assert mask_strategy.load(str(file)).steps == 12


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "must map step_layer_head to a window, not be a list"),
        ("{}", "is empty"),
        ('{"0_0": [1, 1, 1]}', "has the key '0_0'; keys are STEP_LAYER_HEAD"),
        ('{"0_0_0": [1, 1]}', r"has \[1, 1\] at 0_0_0; a window is three whole numbers"),
        ('{"0_0_0": [1, 0, 1]}', "of at least 1"),
        ('{"0_0_0": null}', "has None at 0_0_0"),
        ('{"0_0_0": [1, 1, 1], "1_0_1": [1, 1, 1]}', "but has no window for 0_0_1"),
    ],
)
def test_a_wrong_mask_strategy_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "strategy.json"
    file.write_text(text)
    with pytest.raises(InvalidOptions, match=message):
        mask_strategy.load(file)


@pytest.mark.parametrize(
    "variable", ["DITPORT_ATTENTION_CONFIG", "SGLANG_DIFFUSION_ATTENTION_CONFIG"]
)
def test_the_variable_may_name_the_strategy_itself(variable: str, tmp_path: Path) -> None:
    file = tmp_path / "strategy.json"
    file.write_text(json.dumps(strategy()))
    asked = preferences_from_options("sliding_tile_attn", environ={variable: str(file)})
    assert asked.options == (("mask_strategy_file_path", str(file)),)
    by_flag = preferences_from_options(
        "sta", attention_backend_config=f"mask_strategy_file_path={file}"
    )
    assert by_flag.options == asked.options
