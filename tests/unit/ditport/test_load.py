"""Loading: the same pipeline that diffusers' own front door gives."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ditport.errors import LoadFailed, ModelForeign, ModelMissing, UnknownOption, UsageError
from ditport.generation.events import Event, Loading, ignore
from ditport.models import memory
from ditport.models.description import ModelDescription
from ditport.models.folder import describe
from ditport.models.load import LoadPlan, load
from ditport.models.memory import MemorySettings
from ditport.models.precision import PrecisionPlan
from ditport.models.replacements import replacements
from ditport.models.single_file import describe_file
from ditport.models.source import ModelSettings, ModelSource


def described(folder: Path) -> ModelDescription:
    return describe(ModelSource(str(folder), "folder", folder))


def plan(dtype: str = "float32", **components: str) -> LoadPlan:
    return LoadPlan(PrecisionPlan(dtype, tuple(components.items())))


def generated(pipeline: Any) -> Any:
    import torch

    pipeline.set_progress_bar_config(disable=True)
    return pipeline(
        "a red circle",
        height=32,
        width=32,
        num_frames=5,
        num_inference_steps=2,
        generator=torch.Generator().manual_seed(1),
    ).frames


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_same_pipeline_as_diffusers_gives(small_wan: Path, dtype: str) -> None:
    import torch
    from diffusers import DiffusionPipeline

    ours = load(described(small_wan), plan(dtype), ignore)
    theirs = DiffusionPipeline.from_pretrained(str(small_wan), dtype=getattr(torch, dtype))
    assert type(ours) is type(theirs)
    assert dict(ours.config) == dict(theirs.config)
    for name, component in theirs.components.items():
        mine = ours.components[name]
        assert type(mine) is type(component)
        if isinstance(component, torch.nn.Module):
            assert mine.training is component.training is False
            pairs = zip(component.state_dict().items(), mine.state_dict().items(), strict=True)
            for (key, expected), (own_key, found) in pairs:
                assert key == own_key
                assert found.dtype == expected.dtype
                assert torch.equal(found, expected)
    assert (generated(ours) == generated(theirs)).all()


def test_precision_by_component(small_wan: Path) -> None:
    import torch

    pipeline = load(described(small_wan), plan("bfloat16", vae="float32"), ignore)
    assert pipeline.vae.dtype is torch.float32
    assert pipeline.text_encoder.dtype is torch.bfloat16


def test_every_component_is_announced(small_wan: Path) -> None:
    seen: list[Event] = []
    load(described(small_wan), plan(), seen.append)
    names = [event.component for event in seen if isinstance(event, Loading)]
    assert names == [None, "text_encoder", "transformer", "vae"]


def test_a_component_from_elsewhere(small_wan: Path, tmp_path: Path) -> None:
    import torch

    other = tmp_path / "other"
    shutil.copytree(small_wan / "vae", other)
    from safetensors.torch import load_file, save_file

    weights = load_file(other / "diffusion_pytorch_model.safetensors")
    changed = {name: tensor + 1 for name, tensor in weights.items()}
    save_file(changed, other / "diffusion_pytorch_model.safetensors", {"format": "pt"})
    model = described(small_wan)
    found = replacements(ModelSettings(component_path=(f"vae={other}",)), model)
    assert found == (("vae", other.resolve()),)
    pipeline = load(model, LoadPlan(PrecisionPlan("float32"), replaced=found), ignore)
    name, tensor = next(iter(pipeline.vae.state_dict().items()))
    assert torch.equal(tensor, changed[name])


@pytest.mark.parametrize(
    ("entry", "cause", "told"),
    [
        ("vea={vae}", UnknownOption, "Did you mean vae"),
        ("vae", UsageError, "COMPONENT=FOLDER"),
        ("vae=/absent", ModelMissing, "does not exist"),
        ("vae={transformer}", ModelForeign, "WanTransformer3DModel.*AutoencoderKLWan is needed"),
    ],
)
def test_components_that_cannot_be_replaced(
    small_wan: Path, entry: str, cause: type[Exception], told: str
) -> None:
    entry = entry.format(vae=small_wan / "vae", transformer=small_wan / "transformer")
    with pytest.raises(cause, match=told):
        replacements(ModelSettings(component_path=(entry,)), described(small_wan))


def test_a_single_file_with_the_folder_that_it_goes_with(small_wan: Path, tmp_path: Path) -> None:
    file = tmp_path / "one.safetensors"
    shutil.copy(small_wan / "transformer" / "diffusion_pytorch_model.safetensors", file)
    settings = ModelSettings(str(file), single_file_config=str(small_wan))
    model = describe_file(ModelSource(str(file), "file", file), settings, ignore)
    assert model.pipeline == "WanPipeline"
    ours = load(model, plan(), ignore)
    theirs = load(described(small_wan), plan(), ignore)
    assert (generated(ours) == generated(theirs)).all()


def test_a_single_file_of_no_known_family(small_wan: Path) -> None:
    file = small_wan / "text_encoder" / "model.safetensors"
    with pytest.raises(ModelForeign, match="--single-file-config"):
        describe_file(ModelSource("f", "file", file), ModelSettings("f"), ignore)


def test_weights_that_do_not_fit_their_config(small_wan: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bad"
    shutil.copytree(small_wan, folder)
    config = folder / "transformer" / "config.json"
    config.write_text(config.read_text().replace('"ffn_dim": 32', '"ffn_dim": 64'))
    with pytest.raises(LoadFailed, match="could not be loaded") as failed:
        load(described(folder), plan(), ignore)
    assert failed.value.exit_code == 1


def test_vae_options_reach_the_vae(small_wan: Path) -> None:
    pipeline = load(described(small_wan), plan(), ignore)
    settings = MemorySettings(vae_tiling=True, vae_slicing=True)
    memory.apply(memory.plan(settings, "cpu", tuple(pipeline.components)), pipeline)
    assert pipeline.vae.use_tiling
    assert pipeline.vae.use_slicing


class RecordingPipeline:
    """Stands for a pipeline on a device that this machine lacks."""

    def __init__(self, components: dict[str, Any]) -> None:
        self.components = components
        self.did: list[str] = []

    def to(self, device: str) -> None:
        self.did.append(f"to {device}")

    def enable_model_cpu_offload(self, device: str) -> None:
        self.did.append(f"offload {device}")


def test_whole_offload_is_diffusers_own() -> None:
    import torch

    parts = {name: torch.nn.Linear(1, 1) for name in ("text_encoder", "transformer", "vae")}
    for settings, expected in (
        (MemorySettings(), ["to cuda"]),
        (MemorySettings("memory"), ["offload cuda"]),
    ):
        pipeline = RecordingPipeline({**parts, "scheduler": object()})
        memory.apply(memory.plan(settings, "cuda", tuple(pipeline.components)), pipeline)
        assert pipeline.did == expected


def test_partial_offload_hooks_only_what_is_asked() -> None:
    import torch

    parts = {name: torch.nn.Linear(1, 1) for name in ("text_encoder", "transformer", "vae")}
    placed = memory.plan(MemorySettings(text_encoder_cpu_offload=True), "meta", tuple(parts))
    memory.apply(placed, RecordingPipeline(dict(parts)))
    assert hasattr(parts["text_encoder"], "_hf_hook")
    assert not hasattr(parts["vae"], "_hf_hook")
    assert next(parts["vae"].parameters()).device.type == "meta"
