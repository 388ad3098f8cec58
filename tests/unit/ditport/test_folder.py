"""Model folders: complete, half there, foreign, with code of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ditport.errors import ModelForeign, ModelIncomplete, RemoteCodeRefused
from ditport.models.folder import describe, looks_like
from ditport.models.source import ModelSource
from tests.unit.ditport.model_folders import CLASSES, write_json, write_model, write_weights


def source(folder: Path) -> ModelSource:
    return ModelSource(str(folder), "folder", folder)


def test_a_complete_folder(model_folder: Path) -> None:
    model = describe(source(model_folder))
    assert model.pipeline == "WanPipeline"
    assert set(model.component_names) == {n for n, entry in CLASSES.items() if entry[0]}
    assert model.denoisers == ("transformer",)
    assert model.signature is not None
    assert model.signature.module == "diffusers.pipelines.wan.pipeline_wan"
    assert model.accepts("num_frames")
    assert not model.accepts("image")


def test_a_missing_component_folder(model_folder: Path) -> None:
    for path in (model_folder / "vae").iterdir():
        path.unlink()
    with pytest.raises(ModelIncomplete, match=r"vae \(AutoencoderKLWan\), and .* is empty"):
        describe(source(model_folder))


def test_shards_that_are_absent(model_folder: Path) -> None:
    folder = model_folder / "transformer"
    (folder / "diffusion_pytorch_model.safetensors").unlink()
    shards = [f"diffusion_pytorch_model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    write_json(
        folder / "diffusion_pytorch_model.safetensors.index.json",
        {"weight_map": {"a": shards[0], "b": shards[1]}},
    )
    write_weights(folder / shards[0])
    with pytest.raises(ModelIncomplete, match=f"lists 2 files, and 1 are absent.*{shards[1]}"):
        describe(source(model_folder))
    write_weights(folder / shards[1])
    describe(source(model_folder))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n", "git-lfs pointer"),
        (b"\x00" * 64, "is not a safetensors file"),
    ],
)
def test_files_that_are_not_weights(model_folder: Path, content: bytes, told: str) -> None:
    (model_folder / "vae" / "diffusion_pytorch_model.safetensors").write_bytes(content)
    with pytest.raises(ModelIncomplete, match=told):
        describe(source(model_folder))


def test_files_that_are_cut_off(model_folder: Path) -> None:
    weights = model_folder / "vae" / "diffusion_pytorch_model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-3])
    with pytest.raises(ModelIncomplete, match=f"cut off at {len(whole) - 3} of {len(whole)} bytes"):
        describe(source(model_folder))


def test_leftovers_of_a_download(model_folder: Path) -> None:
    (model_folder / ".cache" / "huggingface").mkdir(parents=True)
    (model_folder / ".cache" / "huggingface" / "x.incomplete").write_bytes(b"x")
    with pytest.raises(ModelIncomplete, match="half downloaded"):
        describe(source(model_folder))


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, "It is empty"),
        ({"config.json": {"architectures": ["LlamaForCausalLM"]}}, "LlamaForCausalLM"),
        ({"config.json": {"_class_name": "WanModel"}}, "-Diffusers twin"),
        ({"config.json": {"_class_name": "AutoencoderKL"}}, "one component"),
        ({"adapter_config.json": {}}, "LoRA"),
        ({"scheduler_config.json": {}}, "a scheduler"),
        ({"vae/config.json": {}}, "broke off early"),
        ({"inner/model_index.json": {}}, "sub-folder inner"),
        ({"model.safetensors": {}}, "single file model.safetensors"),
        ({"notes.txt": {}}, "It holds notes.txt."),
    ],
)
def test_foreign_folders_are_told_what_they_look_like(
    tmp_path: Path, files: dict[str, object], told: str
) -> None:
    for name, data in files.items():
        write_json(tmp_path / name, data)
    assert told in looks_like(tmp_path)
    with pytest.raises(ModelForeign, match=r"has no model_index\.json"):
        describe(source(tmp_path))


def test_a_class_that_this_diffusers_lacks(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", pipeline="FuturePipeline")
    index = json.loads((folder / "model_index.json").read_text())
    write_json(folder / "model_index.json", {**index, "_diffusers_version": "9.9.0"})
    with pytest.raises(ModelForeign, match=r"FuturePipeline.*written by 9\.9\.0"):
        describe(source(folder))


def test_code_of_its_own_needs_trust(tmp_path: Path) -> None:
    folder = write_model(
        tmp_path / "m", classes={**CLASSES, "transformer": ["my_model", "MyTransformer"]}
    )
    (folder / "transformer" / "my_model.py").write_text("")
    with pytest.raises(RemoteCodeRefused, match=r"transformer/my_model\.py.*--trust-remote-code"):
        describe(source(folder))
    assert describe(source(folder), trust_remote_code=True).pipeline == "WanPipeline"


def test_a_pipeline_of_its_own_needs_trust(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    index = json.loads((folder / "model_index.json").read_text())
    write_json(folder / "model_index.json", {**index, "_class_name": ["pipeline", "Mine"]})
    with pytest.raises(RemoteCodeRefused, match=r"pipeline\.py"):
        describe(source(folder))
    model = describe(source(folder), trust_remote_code=True)
    assert (model.pipeline, model.signature) == ("Mine", None)
    assert model.accepts("anything")  # nothing is known of its parameters


def test_defaults_beside_the_index(tmp_path: Path) -> None:
    advised = {
        "height": 64,
        "num_inference_steps": 8,
        "vocabulary": ["A", "red", "circle"],
        "sizes": [[64, 64, 13], {"width": 128, "height": 128, "num_frames": 13}],
        "note": "It draws shapes.",
        "made": "yesterday",
    }
    model = describe(source(write_model(tmp_path / "m", defaults=advised)))
    assert (model.defaults.height, model.defaults.width) == (64, None)
    assert model.defaults.sizes == ((64, 64, 13), (128, 128, 13))
    assert model.defaults.unknown_words("A Red cat's circle, a CAT") == ("cat's", "cat")


def test_defaults_that_are_broken(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    (folder / "generation_defaults.json").write_text("{")
    with pytest.raises(ModelIncomplete, match=r"generation_defaults\.json"):
        describe(source(folder))
