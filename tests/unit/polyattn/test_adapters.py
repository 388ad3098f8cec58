"""Each adapter on a stand-in with the real signature: it computes what its row says it serves.

That the real kernels compute it too is shown on hardware only (tests/gpu/check.py); here it is
shown that nothing of a call is lost, turned round or written to on the way to them.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from polyattn import capabilities
from polyattn.backends import packing
from polyattn.backends.torch_sdpa_chunked import in_parts
from polyattn.call import AttentionCall
from polyattn.facts import DeviceFacts, PackageFacts, PlatformFacts, TorchFacts
from polyattn.oracle.tolerance import errors
from polyattn.vocabulary import MaskKind, PackageState, PlatformName
from tests.unit.polyattn import kernel_packages
from tests.unit.polyattn.kernel_packages import Recorder

ROWS = ("fa2", "fa3", "fa3_hopper", "fa4", "sage1", "sage2", "sage3", "aiter")
BATCH, HEADS = 3, 4


@dataclasses.dataclass(frozen=True)
class Case:
    """One call, and how its tensors lie in memory."""

    name: str
    query_len: int = 64
    kv_len: int = 64
    kv_heads: int = HEADS
    causal: bool = False
    scale: float | None = None
    mask: Callable[[int], Tensor] | None = None
    layout: str = "contiguous"

    def call(self, row: str) -> AttentionCall:
        needs = capabilities.row(row).needs
        return AttentionCall(
            batch=BATCH,
            query_len=self.query_len,
            kv_len=self.kv_len,
            heads=HEADS,
            kv_heads=self.kv_heads,
            head_dim=64,
            dtype=needs.dtypes[0],
            mask=MaskKind.KEY_PADDING if self.mask else MaskKind.NONE,
            causal=self.causal,
            softmax_scale=self.scale,
        )


def suffix(kv_len: int) -> Tensor:
    """Item 0 is whole; the others end early."""
    counts = torch.tensor([kv_len, kv_len - 5, 1])
    return (torch.arange(kv_len) < counts[:, None])[:, None, None]


def holes(kv_len: int) -> Tensor:
    """Valid keys are no prefix: who packs by counting them gets this wrong."""
    mask = torch.rand(BATCH, 1, 1, kv_len, generator=torch.Generator().manual_seed(2)) > 0.4
    mask[..., -1] = True
    return mask


def nothing_for_one(kv_len: int) -> Tensor:
    """Item 1 has no valid key: its rows are zeros."""
    mask = holes(kv_len)
    mask[1] = False
    return mask


def shared(kv_len: int) -> Tensor:
    """One mask for all items, with fewer dimensions than the scores."""
    return holes(kv_len)[0, 0]


def nothing_at_all(kv_len: int) -> Tensor:
    return torch.zeros(BATCH, 1, 1, kv_len, dtype=torch.bool)


CASES = (
    Case("plain"),
    Case("cross", query_len=70, kv_len=128),
    Case("short keys", query_len=70, kv_len=17),
    Case("one query", query_len=1, kv_len=128),
    Case("grouped", kv_heads=2),
    Case("one key head", kv_heads=1),
    Case("causal", causal=True),
    Case("causal, not of whole blocks", query_len=33, kv_len=33, causal=True),
    Case("causal cross", query_len=33, kv_len=70, causal=True),
    Case("scaled", scale=0.3),
    Case("transposed", layout="transposed"),
    Case("sliced", layout="sliced"),
    Case("strided numbers", layout="strided"),
    Case("padded", mask=suffix),
    Case("padded with holes", query_len=33, kv_len=70, mask=holes),
    Case("padded, one item empty", mask=nothing_for_one),
    Case("padded alike", mask=shared),
    Case("padded, nothing valid", mask=nothing_at_all),
    Case("padded, grouped, scaled", kv_heads=2, scale=0.3, mask=holes),
    Case("padded, causal", causal=True, mask=suffix),
)


def machine(row: str) -> PlatformFacts:
    """A machine that runs the row: its first architecture, its package."""
    needs = capabilities.row(row).needs
    rocm = PlatformName.CUDA not in needs.platforms
    version = {"sage2": "2.2.0", "sage1": "1.0.6"}.get(row, "3.0")
    assert needs.package is not None
    return PlatformFacts(
        platform=PlatformName.ROCM if rocm else PlatformName.CUDA,
        system="Linux",
        machine="x86_64",
        python="3.12.7",
        torch=TorchFacts("2.14.1", None if rocm else "13.0", "7.2" if rocm else None),
        devices=(DeviceFacts(0, "a device", needs.architectures[0]),),
        packages=(PackageFacts(needs.package, PackageState.IMPORTS, version),),
    )


def tensors(case: Case, call: AttentionCall) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)

    def draw(length: int, heads: int) -> Tensor:
        data = torch.randn(BATCH, length, heads, call.head_dim, generator=generator)
        data = data.to(getattr(torch, call.dtype))
        if case.layout == "transposed":
            return data.transpose(1, 2).contiguous().transpose(1, 2)
        if case.layout == "sliced":
            return torch.cat([data + 1, data, data - 1], dim=2)[:, :, heads : 2 * heads]
        if case.layout == "strided":
            return data.transpose(1, 3).contiguous().transpose(1, 3)
        return data

    return (
        draw(case.query_len, HEADS),
        draw(case.kv_len, case.kv_heads),
        draw(case.kv_len, case.kv_heads),
    )


SERVED = [
    pytest.param(row, case, id=f"{row}-{case.name}")
    for row in ROWS
    for case in CASES
    if capabilities.row(row).needs.unmet(case.call(row), machine(row)) is None
]


@pytest.fixture(autouse=True)
def _forget_masks() -> Iterator[None]:
    yield
    packing._known.clear()


def adapter(row: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Callable[..., Tensor], Recorder]:
    recorder = kernel_packages.install(row, monkeypatch)
    reference = capabilities.row(row).adapter
    assert reference is not None
    module, _, name = reference.partition(":")
    attend = getattr(importlib.import_module(module), name)
    # What it imported is the stand-in; the next test shall not find it.
    monkeypatch.delitem(sys.modules, module)
    return attend, recorder


@pytest.mark.parametrize(("row", "case"), SERVED)
def test_an_adapter_passes_on_all_of_a_call(
    row: str, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    attend, recorder = adapter(row, monkeypatch)
    query, key, value = tensors(case, case.call(row))
    mask = None if case.mask is None else case.mask(case.kv_len)
    given = [query, key, value, *([] if mask is None else [mask])]
    before = [tensor.clone() for tensor in given]
    output = attend(query, key, value, mask, case.causal, case.scale)
    assert output.shape == query.shape
    assert output.dtype == query.dtype
    _, excess = errors(
        output, query, key, value, mask=mask, causal=case.causal, softmax_scale=case.scale
    )
    assert excess <= 1
    for tensor, kept in zip(given, before, strict=True):
        assert torch.equal(tensor, kept), "the caller's tensor was changed"
    assert len(recorder.calls) == (0 if case.mask is nothing_at_all else 1)


# What each row must not be given, by the sources beside its rules.
REFUSED = [
    *((row, "causal cross", "as many keys as queries") for row in ROWS),
    *((row, "padded", "takes no key_padding mask") for row in ("fa4", "sage1", "sage2", "aiter")),
    *((row, "padded, causal", "causal alignment") for row in ("fa2", "fa3", "fa3_hopper")),
    ("sage1", "short keys", "multiple of 64"),
    ("sage3", "grouped", "as many key heads as query heads"),
    ("sage3", "scaled", "no softmax_scale"),
]


@pytest.mark.parametrize(("row", "name", "why"), REFUSED)
def test_what_a_kernel_computes_otherwise_is_a_need_of_its_row(
    row: str, name: str, why: str
) -> None:
    case = next(case for case in CASES if case.name == name)
    call = dataclasses.replace(case.call(row))
    assert why in (capabilities.row(row).needs.unmet(call, machine(row)) or "")


def test_every_dense_row_with_a_package_is_tested() -> None:
    named = {row.name for row in capabilities.BUILTIN if row.needs.package and row.adapter}
    assert named == set(ROWS)
    tested = {parameter.values[0] for parameter in SERVED}
    assert tested == named


def test_a_mask_is_read_once_per_tensor_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    real = packing._read
    monkeypatch.setattr(packing, "_read", lambda *args: reads.append(1) or real(*args))
    mask = suffix(8)
    first = packing.packing(mask, BATCH, 8)
    assert packing.packing(mask, BATCH, 8) is first
    assert len(reads) == 1
    mask[0, ..., 0] = False
    assert packing.packing(mask, BATCH, 8).starts.tolist() == [0, 7, 10, 11]
    assert len(reads) == 2
    with torch.inference_mode():
        frozen = suffix(8)
        packing.packing(frozen, BATCH, 8)
        packing.packing(frozen, BATCH, 8)
    assert len(reads) == 4  # an inference tensor has no version: it may change unseen
    del mask
    assert len(packing._known) == 0


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask_shape", [None, (1, 1, 1, 20), (2, 1, 33, 20), (33, 20)])
@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("most_scores", [2, 4000, 2**30])
def test_queries_in_parts_are_the_oracles(
    causal: bool, mask_shape: tuple[int, ...] | None, additive: bool, most_scores: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 33, 4, 16, generator=generator)
    key, value = torch.randn(2, 2, 20, 2, 16, generator=generator).unbind(0)
    mask = None
    if mask_shape is not None:
        mask = torch.rand(mask_shape, generator=generator) > 0.4
        mask[..., 0] = True
        if additive:
            mask = torch.zeros(mask_shape).masked_fill(~mask, -torch.inf)
    output = in_parts(query, key, value, mask, causal, 0.3, most_scores)
    _, excess = errors(output, query, key, value, mask=mask, causal=causal, softmax_scale=0.3)
    assert excess <= 1
