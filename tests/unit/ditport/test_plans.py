"""Plans for device, precision, memory, compilation and LoRA: pure, and refused where impossible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ditport.errors import DeviceRefused, DtypeRefused, LoraRefused, UsageError
from ditport.generation.memory_errors import SIZE
from ditport.models import compilation, device, lora, memory, precision
from ditport.models.compilation import CompilationSettings
from ditport.models.device import DeviceSettings
from ditport.models.folder import describe
from ditport.models.lora import Lora, LoraSettings
from ditport.models.memory import MemorySettings
from ditport.models.precision import PrecisionSettings
from ditport.models.source import ModelSource
from ditport.startup import startup_notes
from polyattn.facts import DeviceFacts, PlatformFacts
from polyattn.vocabulary import PlatformName
from tests.unit.ditport.model_folders import write_model, write_weights

COMPONENTS = ("text_encoder", "text_encoder_2", "transformer", "vae")


def facts(platform: PlatformName, *devices: tuple[str, str], **more: Any) -> PlatformFacts:
    found = tuple(DeviceFacts(index, *device) for index, device in enumerate(devices))
    return PlatformFacts(platform, "Linux", "x86_64", "3.11", devices=found, **more)


CPU = facts(PlatformName.CPU, ("a CPU", "x86_64"))
H100 = facts(PlatformName.CUDA, ("H100", "sm_90"))
T4 = facts(PlatformName.CUDA, ("T4", "sm_75"))
MI300 = facts(PlatformName.ROCM, ("MI300X", "gfx942"))
MAC = facts(PlatformName.MPS, ("M2", "apple_m2"))


@pytest.mark.parametrize(
    ("asked", "machine", "expected"),
    [
        ("auto", CPU, "cpu"),
        ("auto", H100, "cuda"),
        ("auto", MI300, "cuda"),
        ("auto", MAC, "mps"),
        ("cpu", H100, "cpu"),
        ("cuda:0", MI300, "cuda:0"),
        ("CUDA", H100, "cuda"),
    ],
)
def test_devices(asked: str, machine: PlatformFacts, expected: str) -> None:
    assert device.plan(DeviceSettings(asked), machine) == expected


@pytest.mark.parametrize(
    ("asked", "machine", "told"),
    [
        ("cuda", CPU, "no cuda device"),
        ("mps", H100, "no mps device"),
        ("cuda:1", H100, "1 found: H100"),
        ("tpu", H100, "'tpu' is no device"),
        ("cuda:x", H100, "is no device"),
    ],
)
def test_devices_that_are_not_there(asked: str, machine: PlatformFacts, told: str) -> None:
    with pytest.raises(DeviceRefused, match=told):
        device.plan(DeviceSettings(asked), machine)


def test_the_reason_for_a_missing_device_is_told() -> None:
    blind = facts(PlatformName.CPU, notes=("torch 2 is built for the CPU, buy another",))
    with pytest.raises(DeviceRefused, match="buy another"):
        device.plan(DeviceSettings("cuda"), blind)


@pytest.mark.parametrize(
    ("machine", "where", "expected"),
    [
        (CPU, "cpu", "float32"),
        (H100, "cuda", "bfloat16"),
        (T4, "cuda", "float16"),
        (MI300, "cuda", "bfloat16"),
        (MAC, "mps", "bfloat16"),
    ],
)
def test_automatic_precision(machine: PlatformFacts, where: str, expected: str) -> None:
    assert precision.plan(PrecisionSettings(), machine, where, COMPONENTS).default == expected


def test_precision_by_component() -> None:
    settings = PrecisionSettings("bfloat16", "float16", "float32", ("float32", "bfloat16"))
    plan = precision.plan(settings, H100, "cuda", COMPONENTS)
    assert [plan.of(name) for name in COMPONENTS] == ["float32", "bfloat16", "float16", "float32"]
    assert plan.of("scheduler") == "bfloat16"


def test_precision_that_cannot_be() -> None:
    with pytest.raises(DtypeRefused, match="no 64-bit"):
        precision.plan(PrecisionSettings("float64"), MAC, "mps", COMPONENTS)
    with pytest.raises(DtypeRefused, match="2 text encoders"):
        precision.plan(
            PrecisionSettings(text_encoder_precisions=("float32",) * 3), CPU, "cpu", COMPONENTS
        )


def test_precision_that_disappoints_is_noted() -> None:
    plan = precision.plan(PrecisionSettings("float16"), CPU, "cpu", COMPONENTS)
    assert "emulated" in plan.notes[0]
    plan = precision.plan(PrecisionSettings("bfloat16"), T4, "cuda", COMPONENTS)
    assert "T4" in plan.notes[0]


def test_everything_stays_on_the_device_unasked() -> None:
    plan = memory.plan(MemorySettings(), "cuda", COMPONENTS)
    assert plan.all_on_device
    assert plan.notes == ()


def test_offload_by_component() -> None:
    settings = MemorySettings(dit_layerwise_offload=True, text_encoder_cpu_offload=True)
    plan = memory.plan(settings, "cuda", COMPONENTS)
    assert [plan.of(name) for name in COMPONENTS] == [
        "offloaded",
        "offloaded",
        "layerwise",
        "device",
    ]


def test_explicit_options_win_over_the_mode() -> None:
    settings = MemorySettings("memory", vae_cpu_offload=False)
    plan = memory.plan(settings, "cuda", COMPONENTS)
    assert (plan.of("transformer"), plan.of("vae")) == ("offloaded", "device")


def test_offload_on_a_cpu_is_said_to_do_nothing() -> None:
    plan = memory.plan(MemorySettings(text_encoder_cpu_offload=True), "cpu", COMPONENTS)
    assert plan.all_on_device
    assert "no effect" in plan.notes[0]
    assert (
        memory.plan(MemorySettings(text_encoder_cpu_offload=False), "cpu", COMPONENTS).notes == ()
    )


def test_two_kinds_of_offload_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        memory.plan(MemorySettings(dit_cpu_offload=True, dit_layerwise_offload=True), "cuda", ())


def described(folder: Path, **options: Any) -> Any:
    return describe(ModelSource("m", "folder", write_model(folder, **options)))


def test_compilation_is_of_the_denoisers(tmp_path: Path) -> None:
    model = described(tmp_path)
    assert compilation.plan(CompilationSettings(), model).components == ()
    assert compilation.plan(CompilationSettings(True), model).components == ("transformer",)


def test_loras_are_paired_with_names_and_weights(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_weights(tmp_path / f"{name}.safetensors", ("x.lora_A.weight", "x.lora_B.weight"))
    paths = (str(tmp_path / "a.safetensors"), str(tmp_path / "b.safetensors"))
    plan = lora.plan(LoraSettings(paths, ("style",), (0.5,)), described(tmp_path / "m"))
    assert plan.loras == (Lora(paths[0], "style", 0.5), Lora(paths[1], "default_2", 1.0))


@pytest.mark.parametrize(
    ("name", "told"),
    [("absent", "no LoRA"), ("plain.safetensors", "no LoRA weights"), ("a.bin", "not a .safet")],
)
def test_what_is_no_lora(tmp_path: Path, name: str, told: str) -> None:
    write_weights(tmp_path / "plain.safetensors")
    (tmp_path / "a.bin").write_bytes(b"x")
    with pytest.raises(LoraRefused, match=told):
        lora.plan(LoraSettings((str(tmp_path / name),)), described(tmp_path / "m"))


def test_a_cut_off_lora(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_weights(path, ("x.lora_A.weight",))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(LoraRefused, match="cut off"):
        lora.plan(LoraSettings((str(path),)), described(tmp_path / "m"))


def test_a_pipeline_without_loras(tmp_path: Path) -> None:
    write_weights(tmp_path / "a.safetensors", ("x.lora_A.weight",))
    model = described(tmp_path / "m", pipeline="DiTPipeline")
    with pytest.raises(LoraRefused, match="DiTPipeline cannot load a LoRA"):
        lora.plan(LoraSettings((str(tmp_path / "a.safetensors"),)), model)


def test_more_weights_than_loras(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="more --lora-nickname or --lora-scale"):
        lora.plan(LoraSettings((), (), (1.0,)), described(tmp_path / "m"))


@pytest.mark.parametrize(
    ("message", "size"),
    [
        ("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0", ("2.50", "GiB")),
        (
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes.",
            ("99", "bytes"),
        ),
    ],
)
def test_sizes_in_torchs_messages(message: str, size: tuple[str, str]) -> None:
    found = SIZE.search(message)
    assert found is not None
    assert found.groups() == size


def test_an_image_without_its_device_says_how_to_start_it() -> None:
    (note,) = startup_notes(facts(PlatformName.CPU, image="cuda"))
    assert "--gpus all" in note
    assert startup_notes(facts(PlatformName.CUDA, image="cuda")) == ()
    assert startup_notes(facts(PlatformName.CPU, image="cpu")) == ()
    assert startup_notes(facts(PlatformName.CPU, notes=("an odd thing",))) == ("An odd thing.",)
