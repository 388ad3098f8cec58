"""What a user can say, in every form in which it can be said, and what is refused in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polyattn.errors import InvalidOptions, UnknownName
from polyattn.preferences import (
    AttentionPreferences,
    OptionValue,
    Request,
    parse_backend,
    parse_component_backends,
    parse_options,
    preferences_from_options,
)
from polyattn.vocabulary import Role


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("fa", Request("fa")),
        ("FA", Request("fa")),
        (" fa ", Request("fa")),
        ("fa3", Request("fa", "fa3")),
        ("FA4", Request("fa", "fa4")),
        ("fa2", Request("fa", "fa2")),
        ("flash_attn", Request("fa")),
        ("torch_sdpa", Request("torch_sdpa")),
        ("TORCH-SDPA", Request("torch_sdpa")),
        ("sdpa", Request("torch_sdpa")),
        ("sage_attn", Request("sage_attn")),
        ("sage_attn_3", Request("sage_attn_3")),
        ("sage3", Request("sage_attn_3")),
        ("aiter", Request("aiter")),
        ("sliding_tile_attn", Request("sliding_tile_attn")),
        ("video_sparse_attn", Request("video_sparse_attn")),
        ("vmoba_attn", Request("vmoba_attn")),
        ("sage1", Request("sage_attn", "sage1")),
    ],
)
def test_backend_names(name: str, request_: Request) -> None:
    assert parse_backend(name) == request_


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("torch_spda", "torch_sdpa"),
        ("sage_atn", "sage_attn"),
        ("sliding_tile", "sliding_tile_attn"),
        ("flash_attention", "flash_attn"),
        ("ailter", "aiter"),
        ("zzzzzz", None),
        ("", None),
    ],
)
def test_a_misspelt_backend_is_answered_with_the_nearest(name: str, nearest: str | None) -> None:
    with pytest.raises(UnknownName) as error:
        parse_backend(name)
    assert error.value.nearest == nearest
    assert ("Did you mean" in str(error.value)) is (nearest is not None)
    assert "torch_sdpa" in str(error.value)  # every known name is listed


def test_components_and_roles() -> None:
    components, roles = parse_component_backends(
        " text_encoder = torch_sdpa , transformer.cross=fa3,transformer.self=fa,"
    )
    assert components == (("text_encoder", Request("torch_sdpa")),)
    assert roles == (
        ("transformer", Role.CROSS, Request("fa", "fa3")),
        ("transformer", Role.SELF, Request("fa")),
    )


@pytest.mark.parametrize(
    "text", ["transformer", "transformer=", "=fa", ".cross=fa", "a=fa;b=fa=", "a = "]
)
def test_malformed_components_are_refused(text: str) -> None:
    with pytest.raises((InvalidOptions, UnknownName)):
        parse_component_backends(text)


def test_a_misspelt_role_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"Did you mean 'cross'\?"):
        parse_component_backends("transformer.crss=fa")


@pytest.mark.parametrize("text", ["vae=fa,vae=torch_sdpa", "vae.self=fa,vae.self=fa"])
def test_saying_it_twice_is_refused(text: str) -> None:
    with pytest.raises(InvalidOptions, match="more than once"):
        parse_component_backends(text)


OPTIONS: dict[str, OptionValue] = {"sparsity": 0.5, "steps": 12, "mode": "a", "on": True}


def test_the_forms_of_a_config_mean_the_same(tmp_path: Path) -> None:
    expected = tuple(sorted(OPTIONS.items()))
    (tmp_path / "c.json").write_text(json.dumps(OPTIONS))
    (tmp_path / "c.yaml").write_text(
        "sparsity: 0.5\nsteps: 12\nmode: a\non: true\n".replace("on:", '"on":')
    )
    assert parse_options("sparsity=0.5,steps=12, mode=a ,on=true") == expected
    assert parse_options(json.dumps(OPTIONS)) == expected
    assert parse_options(str(tmp_path / "c.json")) == expected
    assert parse_options(str(tmp_path / "c.yaml")) == expected


def test_lists_become_tuples_so_that_preferences_stay_hashable() -> None:
    options = parse_options('{"tile_size": [4, [8, 8]]}')
    assert options == (("tile_size", (4, (8, 8))),)
    assert hash(AttentionPreferences(options=options))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{broken", "not JSON"),
        ("missing.json", "cannot be read"),
        ("missing.yaml", "cannot be read"),
        ("novalue", "KEY=VALUE"),
        ("=5", "KEY=VALUE"),
        ('{"a": {"b": 1}}', "'a' has a value of dict"),
        # Longer than a file name may be: asking the file system for it raises OSError.
        ("a=1," + "x" * 5000, "KEY=VALUE"),
        ("x" * 5000, "KEY=VALUE"),
    ],
)
def test_unreadable_options_are_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidOptions, match=said):
        parse_options(text)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("c.json", b"[1, 2]", "must be a mapping of options, not list"),
        ("c.json", b"\xff\xfe\x00", "is not UTF-8 text"),
        ("c.yaml", b"a: [1", "is not YAML"),
        ("c.yaml", b"\xff\xfe\x00", "is not UTF-8 text"),
        ("c.yaml", b"", "must be a mapping"),
        ("c.yaml", b"when: 2026-11-30", "'when' has a value of date"),
        ("c.toml", b"a = 1", "neither .json nor .yaml"),
    ],
)
def test_unreadable_config_files_are_refused(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidOptions, match=said):
        parse_options(str(tmp_path / name))


@pytest.mark.parametrize("word", [None, "", "auto", "AUTO", " auto "])
def test_auto_is_no_request(word: str | None) -> None:
    assert preferences_from_options(word).backend is None
    assert preferences_from_options(word).requests == ()


def test_everything_that_was_said_is_listed_strongest_first() -> None:
    preferences = preferences_from_options("fa", ["vae=torch_sdpa", "transformer.cross=fa2"])
    assert [words for words, _ in preferences.requests] == [
        "transformer.cross=fa2",
        "vae=torch_sdpa",
        "--attention-backend fa",
    ]
    assert preferences.named_components == ("transformer", "vae")


@pytest.mark.parametrize(
    ("flag", "environ", "options", "source"),
    [
        ("a=1", {"DITPORT_ATTENTION_CONFIG": "a=2"}, (("a", 1),), "--attention-backend-config"),
        (
            None,
            {"DITPORT_ATTENTION_CONFIG": "a=2", "SGLANG_DIFFUSION_ATTENTION_CONFIG": "a=3"},
            (("a", 2),),
            "DITPORT_ATTENTION_CONFIG",
        ),
        (
            None,
            {"SGLANG_DIFFUSION_ATTENTION_CONFIG": "a=3"},
            (("a", 3),),
            "SGLANG_DIFFUSION_ATTENTION_CONFIG",
        ),
        (None, {}, (), None),
        (None, {"DITPORT_ATTENTION_CONFIG": ""}, (), None),
    ],
)
def test_where_options_come_from(
    flag: str | None,
    environ: dict[str, str],
    options: tuple[tuple[str, OptionValue], ...],
    source: str | None,
) -> None:
    preferences = preferences_from_options(attention_backend_config=flag, environ=environ)
    assert (preferences.options, preferences.options_source) == (options, source)
