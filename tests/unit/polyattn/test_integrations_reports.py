"""What users of other runtimes reported, and what is right here instead.

Each test names its row of the research note facts/reports.md, whose rows cite public threads.
Rows that are tested elsewhere as well: 8, 9, 13, 14 (test_replay.py), 17, 18, 20, 34
(test_adapters.py), 26 and 28 (sparse tests), 29 and 30 (test_compiled.py), 15 and 16
(test_imports.py).
"""

from __future__ import annotations

import dataclasses
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from polyattn import capabilities, layers
from polyattn.capabilities import Needs
from polyattn.errors import BackendUnavailable, NonFiniteOutput
from polyattn.facts import PackageFacts, PlatformFacts, TorchFacts
from polyattn.integrations.diffusers import attach
from polyattn.integrations.kernels import TorchKernels
from polyattn.layers import Context, LocalAttention
from polyattn.preferences import AttentionPreferences, parse_backend, preferences_from_options
from polyattn.selector import check_preferences, select
from polyattn.vocabulary import MaskKind, PackageState, Source
from tests.small_models import DENOISERS
from tests.small_pipelines import build_wan, run_wan
from tests.unit.polyattn.machines import (
    CROSS,
    ENCODER,
    H100,
    M2,
    MI300X,
    RTX_4090,
    RTX_5090,
    SELF,
    T4,
    VAE,
    call,
    replace_rows,
    with_package,
)


def asked(backend: str | None = None, components: str = "", **more: Any) -> AttentionPreferences:
    return preferences_from_options(backend, components, environ={}, **more)


class Pipeline:
    """The part of a pipeline that attach() reads."""

    def __init__(self, **components: Any) -> None:
        self.components = components


def black(query: Tensor, *_: Any, **__: Any) -> Tensor:
    """A lossy kernel whose sums overflow."""
    return torch.full_like(query, float("nan"))


@pytest.fixture
def overflowing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """sage_attn runs everywhere and gives NaN."""
    rows = tuple(
        dataclasses.replace(row, needs=Needs(), adapter=f"{__name__}:black")
        if row.name == "sage1"
        else row
        for row in capabilities.BUILTIN
    )
    replace_rows(monkeypatch, rows)
    layers.adapter.cache_clear()
    yield
    layers.adapter.cache_clear()


# 1: black images with sage on Qwen-Image: the first output is looked at.


@pytest.mark.usefixtures("overflowing")
def test_reports_1_a_lossy_backend_that_gives_nan_is_named(
    cpu: PlatformFacts, caplog: pytest.LogCaptureFixture
) -> None:
    denoiser = next(d for d in DENOISERS if d.family == "QwenImage")
    model = denoiser.build()
    attachment = attach(Pipeline(transformer=model), asked("sage_attn"), cpu)
    inputs = {**denoiser.inputs(), "encoder_hidden_states_mask": None}
    with torch.no_grad():
        out = model(**inputs, return_dict=False)[0]
    assert not out.isfinite().all()
    assert attachment.checks["transformer"].endswith("output not finite under sage1")
    assert "--component-attention-backends transformer=torch_sdpa" in caplog.text
    attachment.detach()


@pytest.mark.usefixtures("overflowing")
def test_reports_1_under_error_it_raises(cpu: PlatformFacts) -> None:
    denoiser = next(d for d in DENOISERS if d.family == "LTX")
    model = denoiser.build()
    attachment = attach(
        Pipeline(transformer=model), asked("sage_attn", on_substitution="error"), cpu
    )
    with pytest.raises(NonFiniteOutput, match="sage1"):
        denoiser.run(model)
    attachment.detach()


def test_reports_2_one_role_can_be_kept_exact() -> None:
    preferences = asked("sage_attn", "transformer.cross=torch_sdpa")
    assert select(call(site=CROSS, kv_len=512), H100, preferences).backend == "torch_sdpa"
    assert select(call(site=SELF), H100, preferences).backend == "sage_attn"


def test_reports_3_an_installed_lossy_package_changes_nothing() -> None:
    assert H100.package("sageattention").state is PackageState.IMPORTS
    assert select(call(), H100).backend == "fa"


def test_reports_4_an_explicit_flag_beats_what_is_installed_and_only_a_force_beats_it() -> None:
    chosen = select(call(), RTX_5090, asked("torch_sdpa"))
    assert (chosen.backend, chosen.source) == ("torch_sdpa", Source.FLAG)
    forced = select(call(), RTX_5090, asked("torch_sdpa"), parse_backend("sage_attn"))
    assert (forced.backend, forced.source) == ("sage_attn", Source.FORCE)


@pytest.mark.parametrize("site", [ENCODER, VAE], ids=["text_encoder", "vae"])
def test_reports_5_encoders_and_vaes_do_not_follow_the_flag(site: Any) -> None:
    chosen = select(call(site=site, dtype="float32"), H100, asked("sage_attn"))
    assert (chosen.backend, chosen.source) == ("torch_sdpa", Source.AUTO)


def test_reports_6_an_unsupported_head_dim_is_one_warning(
    cpu: PlatformFacts, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = build_wan()
    attachment = attach(pipeline, asked("fa"), cpu)
    with caplog.at_level(logging.WARNING, "polyattn"):
        run_wan(pipeline)
        run_wan(pipeline)
    assert [r for r in caplog.records if "fa was requested" in r.getMessage()][1:] == []
    for head_dim in (160, 256, 384):
        assert select(call(head_dim=head_dim), H100, asked("sage_attn")).backend != "sage_attn"
    attachment.detach()


def test_reports_7_sage_is_refused_below_sm_80() -> None:
    with pytest.raises(BackendUnavailable, match="found sm_75"):
        check_preferences(asked("sage_attn"), T4)


def test_reports_9_the_cuda_version_of_a_kernel_is_a_need() -> None:
    sage = PackageFacts("sageattention", PackageState.IMPORTS, "2.2.0")
    old = dataclasses.replace(with_package(RTX_4090, sage), torch=TorchFacts("2.9", cuda="12.6"))
    with pytest.raises(BackendUnavailable, match=r"needs CUDA 12\.8 on sm_89"):
        check_preferences(asked("sage_attn"), old)


def test_reports_10_a_newer_device_is_not_taken_for_an_older_one() -> None:
    assert capabilities.row("fa3").unmet_by_machine(RTX_5090) is not None
    assert select(call(), RTX_5090).implementation == "sdpa"


def test_reports_11_fa3_without_a_cubin_for_8_9_is_not_accepted() -> None:
    assert "found sm_89" in str(capabilities.row("fa3").unmet_by_machine(RTX_4090))


def test_reports_12_an_unfit_request_is_known_before_the_first_call() -> None:
    chosen = select(call(), RTX_4090, asked("fa3"))
    assert chosen.substitution
    assert "found sm_89" in (chosen.reason or "")


def test_reports_14_a_broken_package_is_skipped_and_told_with_its_error() -> None:
    symbol = "ImportError: undefined symbol: _ZN3c104cuda"
    broken = PackageFacts("sageattention", PackageState.BROKEN, "2.2.0", symbol)
    facts = with_package(H100, broken)
    assert select(call(), facts).backend == "fa"
    with pytest.raises(BackendUnavailable, match=symbol):
        check_preferences(asked("sage_attn"), facts)


def test_reports_15_16_nothing_is_imported_that_is_not_asked_for() -> None:
    program = (
        "import sys\n"
        "for name in ('flash_attn', 'sageattention', 'sgl_kernel', 'aiter', 'xformers'):\n"
        "    sys.modules[name] = None  # importing it raises\n"
        "from polyattn import capabilities, selector\n"
        "import polyattn.layers\n"
        "assert capabilities.rows()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("mask", [MaskKind.BOOL, MaskKind.ADDITIVE])
def test_reports_17_18_21_masks_go_to_a_kernel_that_takes_them(mask: MaskKind) -> None:
    for backend in (None, "fa", "sage_attn"):
        assert select(call(mask=mask), H100, asked(backend)).backend == "torch_sdpa"


def test_reports_19_a_mask_that_masks_nothing_is_dropped(cpu: PlatformFacts) -> None:
    context = Context(cpu)
    query, key, value = torch.randn(3, 1, 8, 2, 16).unbind(0)
    LocalAttention(context)(query, key, value, torch.ones(1, 1, 1, 8, dtype=torch.bool))
    assert [tally.call.mask for tally in context.tallies] == [MaskKind.NONE]


def test_reports_23_an_automatic_choice_is_no_request() -> None:
    # Strict or not: text encoders of MI300X in float32 are served by torch, without an error.
    strict = asked(on_substitution="error")
    chosen = select(call(site=ENCODER, dtype="float32"), MI300X, strict)
    assert (chosen.backend, chosen.source, chosen.substitution) == (
        "torch_sdpa",
        Source.AUTO,
        False,
    )


def test_reports_24_a_dtype_that_aiter_does_not_take_is_said() -> None:
    chosen = select(call(dtype="float32"), MI300X, asked("aiter"))
    assert chosen.substitution
    assert "takes float16 or bfloat16, not float32" in (chosen.reason or "")


def test_reports_25_the_report_counts_what_ran_not_what_was_asked(cpu: PlatformFacts) -> None:
    pipeline = build_wan()
    attachment = attach(pipeline, asked("fa"), cpu)
    run_wan(pipeline)
    rows = [row for row in attachment.report().rows if row.component == "transformer"]
    assert {(row.requested, row.backend, row.substitution) for row in rows} == {
        ("fa", "torch_sdpa", True)
    }
    attachment.detach()


def test_reports_27_a_kernel_without_log_sum_exp_does_not_serve_a_ring() -> None:
    sage = PackageFacts("sageattention", PackageState.IMPORTS, "1.0.6")
    reason = capabilities.row("sage1").unmet(call(lse=True), with_package(H100, sage))
    assert reason == "returns no log-sum-exp"


def test_reports_31_metal_gets_torchs_own_function_only() -> None:
    for backend in (None, "fa", "sage_attn", "aiter"):
        assert select(call(), M2, asked(backend)).implementation == "sdpa"
    # 2^30 scores and more are computed in parts (pytorch/pytorch#149261).
    long = call(query_len=32760, kv_len=32760)
    assert select(long, M2).implementation == "sdpa_chunked"


def test_reports_32_which_of_torchs_kernels_ran_is_asked_of_torch(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = TorchKernels()
    query = torch.randn(1, 2, 8, 16)
    kernels.note((query, query, query), {"attn_mask": None, "scale": 0.5})
    kernels.note((query[0], query[0], query[0]), {})  # three dimensions: no fused kernel
    assert str(kernels) == "flash 1, math 1"
    assert kernels.most_bytes == 2 * 8 * 8 * 4
    kernels.warn("transformer")
    assert caplog.text == ""
    # On a GPU and large, it is said with its bytes.
    monkeypatch.setattr(kernels, "_on_gpu", True)
    kernels.most_bytes = 71 * 2**30
    kernels.warn("transformer")
    assert "1 attention calls by its math kernel" in caplog.text
    assert "71.0 GiB" in caplog.text
