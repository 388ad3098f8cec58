"""Every dense implementation that this machine can run, against the float64 oracle.

Runs inside the images, so it imports nothing but polyattn, torch and pytest. It is a true matrix:
`WIDE` is the whole product of dtype, head_dim, mask and causal; `DEEP` is the whole product of
lengths, mask, causal, grouped heads and scale. The other properties rotate through both, so that
every pair of values of any two properties meets in each. What an implementation does not serve by
its needs is no case of it, and a machine on which nothing runs fails.
"""

from __future__ import annotations

import dataclasses
import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from polyattn import capabilities
from polyattn.call import AttentionCall
from polyattn.capabilities import Implementation
from polyattn.forcing import global_force_attn_backend_context_manager
from polyattn.layers import Context, LocalAttention
from polyattn.masks import MaskMemory
from polyattn.oracle.tolerance import errors
from polyattn.probe import static_facts
from polyattn.vocabulary import Fidelity, MaskKind, PlatformName

FACTS = static_facts()
DEVICE = {PlatformName.CPU: "cpu", PlatformName.MPS: "mps"}.get(FACTS.platform, "cuda")

BATCH, HEADS = 2, 4
DTYPES = ("float32", "float16", "bfloat16")
HEAD_DIMS = (32, 64, 80, 96, 128, 160, 192, 256)
LENGTHS = ((1, 1), (33, 33), (257, 257), (70, 17), (17, 70), (1, 77), (64, 1))
KV_HEADS = (4, 1, 2)
CAUSAL = (False, True)
SCALES = (None, 2.0)  # times head_dim**-0.5, so that scores stay of one size
LAYOUTS = ("contiguous", "transposed", "sliced")

Tensors = tuple[Tensor, Tensor, Tensor, Tensor | None]


def _draw(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator)


def _without_dead_rows(mask: Tensor) -> Tensor:
    mask[..., 0] = True
    return mask


def no_mask(q: int, k: int, g: torch.Generator) -> None:
    return None


def all_true(q: int, k: int, g: torch.Generator) -> Tensor:
    return torch.ones(BATCH, 1, 1, k, dtype=torch.bool)


def padding(q: int, k: int, g: torch.Generator) -> Tensor:
    """The last third of the second item's keys is padding."""
    mask = torch.ones(BATCH, 1, 1, k, dtype=torch.bool)
    mask[1, ..., k - k // 3 :] = False
    return mask


def padding_with_holes(q: int, k: int, g: torch.Generator) -> Tensor:
    """Valid keys are not a prefix: what packs by counting them gets this wrong."""
    return _without_dead_rows(_draw((BATCH, 1, 1, k), g) > 0.4)


def padding_of_one_whole_item(q: int, k: int, g: torch.Generator) -> Tensor:
    mask = torch.ones(BATCH, 1, 1, k, dtype=torch.bool)
    mask[0] = False
    return mask


def bool_per_query(q: int, k: int, g: torch.Generator) -> Tensor:
    return _without_dead_rows(_draw((q, k), g) > 0.4)


def bool_per_item(q: int, k: int, g: torch.Generator) -> Tensor:
    return _without_dead_rows(_draw((BATCH, 1, q, k), g) > 0.4)


def bool_per_head(q: int, k: int, g: torch.Generator) -> Tensor:
    return _without_dead_rows(_draw((1, HEADS, 1, k), g) > 0.4)


def bool_full(q: int, k: int, g: torch.Generator) -> Tensor:
    return _without_dead_rows(_draw((BATCH, HEADS, q, k), g) > 0.4)


def bool_with_dead_rows(q: int, k: int, g: torch.Generator) -> Tensor:
    """Every third query of the first item sees no key."""
    mask = bool_per_item(q, k, g)
    mask[0, :, ::3] = False
    return mask


def additive_per_query(q: int, k: int, g: torch.Generator) -> Tensor:
    return _draw((q, k), g) - 0.5


def additive_padding(q: int, k: int, g: torch.Generator) -> Tensor:
    """Zero and -inf, as diffusers' text encoders write a padding mask."""
    return torch.zeros(BATCH, 1, 1, k).masked_fill(~padding_with_holes(q, k, g), -torch.inf)


def additive_padding_by_lowest(q: int, k: int, g: torch.Generator) -> Tensor:
    """The large negative number that transformers writes instead of -inf."""
    return torch.zeros(BATCH, 1, 1, k).masked_fill(~padding_with_holes(q, k, g), -10000.0)


def additive_full(q: int, k: int, g: torch.Generator) -> Tensor:
    return _draw((BATCH, HEADS, q, k), g).masked_fill(~bool_full(q, k, g), -torch.inf)


def additive_with_dead_rows(q: int, k: int, g: torch.Generator) -> Tensor:
    dead = ~bool_with_dead_rows(q, k, g)
    return _draw((BATCH, 1, q, k), g).masked_fill(dead, -torch.inf)


MASKS = (
    no_mask,
    all_true,
    padding,
    padding_with_holes,
    padding_of_one_whole_item,
    bool_per_query,
    bool_per_item,
    bool_per_head,
    bool_full,
    bool_with_dead_rows,
    additive_per_query,
    additive_padding,
    additive_padding_by_lowest,
    additive_full,
    additive_with_dead_rows,
)


@dataclass(frozen=True)
class Case:
    """One cell of the matrix."""

    dtype: str
    head_dim: int
    lengths: tuple[int, int]
    mask: Any
    causal: bool
    kv_heads: int
    scale: float | None
    layout: str

    def __str__(self) -> str:
        words = (
            self.dtype,
            f"d{self.head_dim}",
            f"{self.lengths[0]}x{self.lengths[1]}",
            self.mask.__name__,
            "causal" if self.causal else "",
            f"kv{self.kv_heads}",
            "scaled" if self.scale else "",
            self.layout,
        )
        return "-".join(filter(None, words))

    @property
    def softmax_scale(self) -> float | None:
        return None if self.scale is None else self.scale * self.head_dim**-0.5

    @property
    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(zlib.crc32(str(self).encode()))

    def tensors(self) -> Tensors:
        """Query, key, value, mask on the device, in the layout of the case."""
        generator, (query_len, kv_len) = self.generator, self.lengths
        dtype = getattr(torch, self.dtype)

        def draw(length: int, heads: int) -> Tensor:
            data = torch.randn(BATCH, length, heads, self.head_dim, generator=generator)
            data = data.to(DEVICE, dtype)
            if self.layout == "transposed":  # how [B, H, S, D] code hands its tensors over
                return data.transpose(1, 2).contiguous().transpose(1, 2)
            if self.layout == "sliced":  # a part of a fused projection: strided, with an offset
                return torch.cat([data + 1, data, data - 1], dim=2)[:, :, heads : 2 * heads]
            return data

        query = draw(query_len, HEADS)
        key, value = draw(kv_len, self.kv_heads), draw(kv_len, self.kv_heads)
        mask = self.mask(query_len, kv_len, generator)
        if mask is not None:
            mask = mask.to(DEVICE) if mask.dtype is torch.bool else mask.to(DEVICE, dtype)
        return query, key, value, mask

    @property
    def mask_kind(self) -> MaskKind:
        """What the layer makes of the mask: one that is true everywhere is none."""
        mask = self.mask(*self.lengths, self.generator)
        return MaskKind.NONE if mask is None else MaskMemory().kind(mask)

    def call(self, kind: MaskKind) -> AttentionCall:
        return AttentionCall(
            batch=BATCH,
            query_len=self.lengths[0],
            kv_len=self.lengths[1],
            heads=HEADS,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            dtype=self.dtype,  # type: ignore[arg-type]
            mask=kind,
            causal=self.causal,
            softmax_scale=self.softmax_scale,
        )


def _rotating(product: Iterable[tuple[Any, ...]], *others: Sequence[Any]) -> Iterator[list[Any]]:
    """The product's rows, each with the next combination of the other values.

    The combinations come in a shuffled order (always the same one): taken in step they would
    meet only some of the rows, wherever the two numbers share a factor.
    """
    generator = torch.Generator().manual_seed(0)
    combinations = list(itertools.product(*others))
    pending: list[int] = []
    for row in product:
        if not pending:
            pending = torch.randperm(len(combinations), generator=generator).tolist()
        yield [*row, *combinations[pending.pop()]]


def _wide() -> tuple[Case, ...]:
    product = itertools.product(DTYPES, HEAD_DIMS, MASKS, CAUSAL)
    rows = _rotating(product, LENGTHS, KV_HEADS, SCALES, LAYOUTS)
    return tuple(
        Case(dtype, head_dim, lengths, mask, causal, kv_heads, scale, layout)
        for dtype, head_dim, mask, causal, lengths, kv_heads, scale, layout in rows
    )


def _deep() -> tuple[Case, ...]:
    product = itertools.product(LENGTHS, MASKS, CAUSAL, KV_HEADS, SCALES)
    rows = _rotating(product, DTYPES, HEAD_DIMS, LAYOUTS)
    return tuple(
        Case(dtype, head_dim, lengths, mask, causal, kv_heads, scale, layout)
        for lengths, mask, causal, kv_heads, scale, dtype, head_dim, layout in rows
    )


CASES = tuple(dict.fromkeys((*_wide(), *_deep())))
USABLE = tuple(
    row
    for row in capabilities.rows()
    if row.fidelity is not Fidelity.SPARSE and row.unmet_by_machine(FACTS) is None
)


def _served() -> list[Any]:
    kinds = [(case, case.call(case.mask_kind)) for case in CASES]
    return [
        pytest.param(row, case, id=f"{row.name}-{case}")
        for row in USABLE
        for case, call in kinds
        if row.unmet(call, FACTS) is None
    ]


SERVED = _served()


def _run(
    case: Case, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> tuple[Implementation, Tensor]:
    """One call of LocalAttention, and the implementation that it counted."""
    context = Context(FACTS)
    output = LocalAttention(context)(query, key, value, mask, case.causal, case.softmax_scale)
    (tally,) = context.tallies
    assert tally.calls == 1
    return capabilities.row(tally.selection.implementation), output


def _check(output: Tensor, case: Case, row: Implementation, tensors: Tensors) -> None:
    query, key, value, mask = tensors
    assert output.dtype == query.dtype
    assert output.device == query.device
    _, excess = errors(
        output.cpu(),
        query.cpu(),
        key.cpu(),
        value.cpu(),
        mask=None if mask is None else mask.cpu(),
        causal=case.causal,
        softmax_scale=case.softmax_scale,
        fidelity=row.fidelity,
    )
    assert excess <= 1, f"the error is {excess:.3g} times the tolerance"


def test_something_is_usable() -> None:
    reasons = {row.name: row.unmet_by_machine(FACTS) for row in capabilities.rows()}
    assert USABLE, f"no dense implementation runs here: {reasons}"
    served = {parameter.values[0].name for parameter in SERVED}
    assert served == {row.name for row in USABLE}


@pytest.mark.parametrize("cases", [_wide(), _deep()], ids=["wide", "deep"])
def test_every_pair_of_values_meets(cases: tuple[Case, ...]) -> None:
    fields = [field.name for field in dataclasses.fields(Case)]
    values = (DTYPES, HEAD_DIMS, LENGTHS, MASKS, CAUSAL, KV_HEADS, SCALES, LAYOUTS)
    assert len(set(cases)) == len(cases)
    for (a, ones), (b, others) in itertools.combinations(zip(fields, values, strict=True), 2):
        met = {(getattr(case, a), getattr(case, b)) for case in cases}
        assert met == set(itertools.product(ones, others)), f"{a} x {b}"


@pytest.mark.parametrize(("row", "case"), SERVED)
def test_it_computes_what_the_oracle_defines(row: Implementation, case: Case) -> None:
    tensors = case.tensors()
    before = [None if tensor is None else tensor.clone() for tensor in tensors]
    with global_force_attn_backend_context_manager(row.name):
        ran, output = _run(case, *tensors)
    assert ran is row
    for tensor, kept in zip(tensors, before, strict=True):
        if tensor is not None and kept is not None:
            assert torch.equal(tensor, kept), "the caller's tensor was changed"
    _check(output, case, row, tensors)


@pytest.mark.parametrize("case", CASES[::16], ids=str)
def test_automatic_choice_serves_every_case_exactly(case: Case) -> None:
    """A call that one implementation cannot serve goes to another one, whatever it is."""
    tensors = case.tensors()
    row, output = _run(case, *tensors)
    assert row.fidelity is Fidelity.EXACT
    _check(output, case, row, tensors)


@pytest.mark.parametrize("width", [32, 96])
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_may_be_narrower_or_wider_than_keys(dtype: str, width: int) -> None:
    case = Case(dtype, 64, (33, 20), no_mask, False, 2, None, "contiguous")
    query, key, value, _ = case.tensors()
    value = torch.cat([value, value], dim=-1)[..., :width]
    row, output = _run(case, query, key, value, None)
    _check(output, case, row, (query, key, value, None))
