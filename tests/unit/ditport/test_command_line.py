"""The command line: exact names, helpful refusals, sglang's spellings."""

from __future__ import annotations

from pathlib import Path

import pytest

from ditport.cli import COMMANDS, main, overview
from ditport.cli.generate import parse, parser
from ditport.cli.words import rewritten
from ditport.errors import UnknownOption, UsageError
from ditport.generation.job import Settings


def test_no_words_mean_defaults() -> None:
    assert parse([]) == Settings()


def test_every_settings_class_contributes_its_options() -> None:
    settings = parse(
        [
            "--prompt",
            "p",
            "--size",
            "64x32",
            "--seed",
            "7",
            "--model-path",
            "m",
            "--lora-path",
            "a",
            "b",
            "--lora-scale",
            "0.5",
            "--dtype",
            "bf16",
            "--vae-cpu-offload",
            "--enable-torch-compile",
            "--attention-backend",
            "fa",
            "--output-path",
            "o.mp4",
            "--num-gpus",
            "1",
            "--device",
            "cpu",
        ]
    )
    assert (settings.sampling.prompt, settings.sampling.size) == ("p", (64, 32))
    assert settings.lora.lora_path == ("a", "b")
    assert settings.lora.lora_scale == (0.5,)
    assert settings.precision.dtype == "bfloat16"
    assert settings.memory.vae_cpu_offload is True
    assert settings.compilation.enable_torch_compile is True
    assert settings.attention.attention_backend == "fa"
    assert settings.output.output_path == "o.mp4"
    assert settings.later.num_gpus == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--dit-cpu-offload"], True),
        (["--dit-cpu-offload", "true"], True),
        (["--dit-cpu-offload", "false"], False),
        (["--dit-cpu-offload=0"], False),
        ([], None),
    ],
)
def test_switches_take_an_optional_word(words: list[str], expected: bool | None) -> None:
    assert parse(words).memory.dit_cpu_offload is expected


def test_shortcuts_and_negatives() -> None:
    assert parse(["--720p"]).sampling.size == (1280, 720)
    assert parse(["--no-save-output"]).output.save_output is False


def test_abbreviations_are_off() -> None:
    with pytest.raises(UnknownOption, match=r"--guidance\."):
        parse(["--guidance", "3"])


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--heigth", "--height"),
        ("--atention-backend", "--attention-backend"),
        ("--sed=3", "--seed"),
    ],
)
def test_misspelt_options_name_the_nearest(given: str, meant: str) -> None:
    with pytest.raises(UnknownOption, match=f"Did you mean {meant}"):
        parse([given])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--height", "tall"], "--height must be a whole number"),
        (["--height"], "--height needs a value"),
        (["--dtype", "int4"], "--dtype must be one of auto"),
        (["--size", "64"], "--size must be WIDTHxHEIGHT"),
        (["stray"], "Nobody asked for 'stray'"),
    ],
)
def test_wrong_values_are_told_in_words(words: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse(words)


def test_components_named_in_the_option() -> None:
    attention = parse(
        ["--component-attention-backends.text_encoder", "torch_sdpa"]
        + ["--component-attention-backends.transformer=fa"]
    ).attention
    assert attention.component_attention_backends == ("text_encoder=torch_sdpa", "transformer=fa")
    assert parse(["--text-encoder-path", "x"]).model.component_path == ("text_encoder=x",)
    assert parse(["--vae-path=~/x"]).model.component_path == ("vae=~/x",)


def test_real_path_options_are_left_alone() -> None:
    known = ["--model-path", "--component-path"]
    assert rewritten(["--model-path", "m"], known) == ["--model-path", "m"]
    assert rewritten(["--modle-path", "m"], known) == ["--modle-path", "m"]


def test_config_files_lose_to_the_line(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(
        "prompt: from file\nseed: 5\nvae_config: {}\ndiffusers_kwargs: {max_sequence_length: 9}\n"
    )
    sampling = parse(["--config", str(config), "--seed", "6"]).sampling
    assert (sampling.prompt, sampling.seed) == ("from file", 6)
    assert sampling.diffusers_kwargs == {"max_sequence_length": 9}


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("c.json", "{", "cannot be parsed"),
        ("c.json", "[]", "must hold a mapping"),
        ("c.yaml", "a: [", "cannot be parsed"),
        ("c.json", '{"sede": 1}', "Did you mean seed"),
        ("absent.json", None, "cannot be read"),
    ],
)
def test_broken_config_files(tmp_path: Path, name: str, text: str | None, told: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=told):
        parse(["--config", str(tmp_path / name)])


def test_help_is_for_users(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse(["--help"])
    shown = capsys.readouterr().out
    assert "--attention-backend" in shown
    assert "examples:" in shown
    assert "--num-gpus" not in shown  # understood and refused, so not advertised
    assert "SUPPRESS" not in shown


def test_overview_names_every_command() -> None:
    for command in COMMANDS:
        assert command in overview()


def test_main_returns_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert main(["--version"]) == 0
    assert main(["genrate"]) == 2
    assert main(["--verison"]) == 2
    assert main(["generate", "--seed", "x"]) == 2
    told = capsys.readouterr().err
    assert "Did you mean generate" in told
    assert "Did you mean --version" in told
    assert "Traceback" not in told


def test_errors_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    import json

    assert main(["generate", "--json", "--model-path", "nowhere", "--prompt", "x"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert told["error"] == "ModelMissing"
    assert told["exit_code"] == 2


def test_interruption_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("ditport.cli._dispatch", interrupted)
    assert main(["generate"]) == 130


def test_our_own_mistakes_say_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(words: list[str]) -> int:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("ditport.cli._dispatch", broken)
    assert main(["generate"]) == 1
    told = capsys.readouterr().err
    assert "not your mistake" in told
    assert "Traceback" not in told
    assert main(["generate", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err
