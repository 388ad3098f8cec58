"""`ditport bench`: figures of what runs here, reasons for what does not."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor

from ditport.cli import main
from polyattn import layers, timing
from polyattn.facts import DeviceFacts, PlatformFacts
from polyattn.vocabulary import PlatformName

TINY = ("--shape", "1x33x20x2x16", "--seconds", "0.001", "--dtype", "float32")


def test_every_dense_implementation_is_measured_or_left_out_with_a_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["bench", *TINY, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    (sdpa,) = data["measurements"]
    assert sdpa["implementation"] == "sdpa"
    assert sdpa["within_tolerance"] is True
    assert sdpa["error"] < 1e-5
    flops = 4 * 33 * 20 * 2 * 16
    assert sdpa["teraflops"] == pytest.approx(flops / sdpa["seconds"] / 1e12)
    assert "fa3 at 1x33x20x2x16" in data["left_out"]
    assert data["facts"]["platform"] == "cpu"


def test_the_table_has_a_line_per_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *TINY, "--implementation", "sdpa"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["shape", "implementation"]
    assert line.split()[:3] == ["1x33x20x2x16", "sdpa", "exact"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--shape", "flx-1024"), "Did you mean flux-1024?"),
        (("--shape", "1x2x3"), "Unknown shape"),
        (("--shape", "0x2x3x4x5"), "Unknown shape"),
        ((*TINY, "--implementation", "sdp"), "Did you mean sdpa?"),
        ((*TINY, "--implementation", "fa3"), "needs the platform cuda"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words]) == 2
    assert said in capsys.readouterr().err


CPU = PlatformFacts(
    PlatformName.CPU, "Linux", "x86_64", "3.12", devices=(DeviceFacts(0, "a CPU", "x86_64"),)
)


def _broken(*_: Tensor) -> Tensor:
    raise RuntimeError("no kernel image is available")


def _wrong(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.zeros_like(query)


def test_a_kernel_that_fails_and_one_that_is_wrong_do_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernels = {"fa2": _broken, "sage1": _wrong, "sdpa": layers.adapter("sdpa")}
    monkeypatch.setattr(timing, "adapter", kernels.__getitem__)
    shape = timing.Shape("tiny", 1, 33, 20, 2, 16)
    broken, wrong, right = timing.measure(shape, "float32", list(kernels), CPU, 0.001)
    assert broken.failure == "RuntimeError: no kernel image is available"
    assert broken.seconds is None
    assert wrong.within_tolerance is False
    assert right.within_tolerance is True
