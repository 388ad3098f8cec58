"""The oracle itself: against plain loops, against torch where torch is right, and by its rules."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from polyattn.oracle.dense import attend
from polyattn.oracle.tolerance import errors, tolerance
from polyattn.vocabulary import Fidelity


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_hand(
    query: Tensor, key: Tensor, value: Tensor, seen: Tensor, bias: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention by loops over numbers: softmax as a sum of exponentials, keys one by one."""
    batch, query_len, heads, _ = query.shape
    kv_len, kv_heads = key.shape[1:3]
    out = torch.zeros(batch, query_len, heads, value.shape[3], dtype=torch.float64)
    lse = torch.full((batch, heads, query_len), -math.inf, dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            g = h * kv_heads // heads
            for i in range(query_len):
                total = 0.0
                for j in range(kv_len):
                    if not seen[b, h, i, j]:
                        continue
                    score = float(query[b, i, h] @ key[b, j, g]) * scale + float(bias[b, h, i, j])
                    total += math.exp(score)
                    out[b, i, h] += math.exp(score) * value[b, j, g]
                if total:
                    out[b, i, h] /= total
                    lse[b, h, i] = math.log(total)
    return out, lse


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [(5, 5), (3, 6), (6, 3)])
@pytest.mark.parametrize("kind", ["none", "bool", "additive"])
def test_the_definition_is_the_sum_over_the_keys(
    kv_heads: int, causal: bool, lengths: tuple[int, int], kind: str
) -> None:
    batch, heads, head_dim, value_dim = 2, 4, 8, 6
    query_len, kv_len = lengths
    query = drawn(batch, query_len, heads, head_dim, seed=1)
    key = drawn(batch, kv_len, kv_heads, head_dim, seed=2)
    value = drawn(batch, kv_len, kv_heads, value_dim, seed=3)
    shape = (batch, heads, query_len, kv_len)
    seen, bias = torch.ones(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.float64)
    mask = None
    if kind == "bool":
        mask = seen = drawn(*shape, seed=4) > 0
    elif kind == "additive":
        mask = bias = drawn(*shape, seed=4)
    if causal:  # query i sees keys 0..i
        rows, columns = torch.arange(query_len)[:, None], torch.arange(kv_len)[None, :]
        seen = seen & (columns <= rows)
    out, lse = attend(query, key, value, mask=mask, causal=causal)
    expected_out, expected_lse = by_hand(query, key, value, seen, bias, head_dim**-0.5)
    torch.testing.assert_close(out, expected_out, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(lse, expected_lse, rtol=1e-12, atol=1e-12)


def test_causal_alignment_is_top_left_as_torchs() -> None:
    # facts/diffusers.md section 7: torch and top-left agree exactly where the lengths differ.
    query, key, value = drawn(1, 4, 1, 8), drawn(1, 8, 1, 8, seed=1), drawn(1, 8, 1, 8, seed=2)
    out, _ = attend(query, key, value, causal=True)
    torchs = scaled_dot_product_attention(
        *(tensor.transpose(1, 2) for tensor in (query, key, value)), is_causal=True
    )
    torch.testing.assert_close(out, torchs.transpose(1, 2))
    torch.testing.assert_close(out[:, 0], value[:, 0])  # the first query sees the first key only


def test_rows_that_see_nothing_are_zeros() -> None:
    query, key, value = drawn(2, 3, 1, 8), drawn(2, 5, 1, 8, seed=1), drawn(2, 5, 1, 8, seed=2)
    mask = torch.ones(2, 1, 3, 5, dtype=torch.bool)
    mask[0, :, 1] = False
    for given in (mask, torch.zeros(mask.shape).masked_fill(~mask, -math.inf)):
        out, lse = attend(query, key, value, mask=given)
        assert not out[0, 1].any()
        assert lse[0, 0, 1] == -math.inf
        assert out.isfinite().all()
        assert lse[1].isfinite().all()


def test_mask_and_causal_both_hold() -> None:
    query, key, value = drawn(1, 3, 1, 8), drawn(1, 3, 1, 8, seed=1), drawn(1, 3, 1, 8, seed=2)
    mask = torch.tensor([[False, True, True]]).expand(3, 3)
    out, _ = attend(query, key, value, mask=mask, causal=True)
    assert not out[0, 0].any()  # causal leaves key 0, which the mask hides
    torch.testing.assert_close(out[0, 1], value[0, 1])


@pytest.mark.parametrize("shape", [(3, 5), (1, 5), (2, 1, 1, 5), (1, 4, 3, 5), (2, 1, 3, 5)])
def test_masks_broadcast(shape: tuple[int, ...]) -> None:
    query, key, value = drawn(2, 3, 4, 8), drawn(2, 5, 4, 8, seed=1), drawn(2, 5, 4, 8, seed=2)
    mask = drawn(*shape, seed=3) > -0.5
    out, lse = attend(query, key, value, mask=mask)
    full, full_lse = attend(query, key, value, mask=mask.expand(2, 4, 3, 5))
    assert torch.equal(out, full)
    assert torch.equal(lse, full_lse)


def test_log_sum_exps_merge_what_was_split() -> None:
    # What ring attention relies on: the parts' outputs weighted by their sums give the whole.
    query, key, value = drawn(1, 3, 2, 8), drawn(1, 9, 2, 8, seed=1), drawn(1, 9, 2, 8, seed=2)
    whole, whole_lse = attend(query, key, value, softmax_scale=0.5)
    parts = [
        attend(query, key[:, part], value[:, part], softmax_scale=0.5)
        for part in (slice(0, 4), slice(4, 9))
    ]
    lse = torch.logsumexp(torch.stack([part[1] for part in parts]), dim=0)
    merged = sum(
        out * (part_lse - lse).exp().transpose(1, 2).unsqueeze(-1) for out, part_lse in parts
    )
    torch.testing.assert_close(lse, whole_lse)
    torch.testing.assert_close(merged, whole)


def test_the_scale_has_a_default_and_may_be_given() -> None:
    query, key, value = drawn(1, 3, 1, 64), drawn(1, 3, 1, 64, seed=1), drawn(1, 3, 1, 64, seed=2)
    assert torch.equal(
        attend(query, key, value)[0], attend(query, key, value, softmax_scale=1 / 8)[0]
    )
    # A scale of 0 is a scale: every key weighs the same.
    mean = value.mean(dim=1, keepdim=True).expand_as(value)
    torch.testing.assert_close(attend(query, key, value, softmax_scale=0.0)[0], mean)


def test_key_heads_must_divide_query_heads() -> None:
    with pytest.raises(ValueError, match="3 key heads do not divide 4 query heads"):
        attend(drawn(1, 2, 4, 8), drawn(1, 2, 3, 8), drawn(1, 2, 3, 8))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_results_are_float64_whatever_comes_in(dtype: torch.dtype) -> None:
    q, k, v = (drawn(1, 2, 2, 8, seed=seed).to(dtype) for seed in range(3))
    before = q.clone(), k.clone(), v.clone()
    out, lse = attend(q, k, v, mask=torch.zeros(2, 2, dtype=dtype), causal=True)
    assert (out.dtype, lse.dtype) == (torch.float64, torch.float64)
    assert all(torch.equal(a, b) for a, b in zip((q, k, v), before, strict=True))


# The tolerance: wide enough for torch's own kernels, narrow enough for the usual mistakes.

HALF = [torch.float16, torch.bfloat16]
DTYPES = [torch.float32, *HALF]


def tensors(dtype: torch.dtype, kv_len: int = 65, head_dim: int = 64) -> tuple[Tensor, ...]:
    shapes = ((2, 33, 4, head_dim), (2, kv_len, 2, head_dim), (2, kv_len, 2, head_dim))
    return tuple(drawn(*shape, seed=seed).to(dtype) for seed, shape in enumerate(shapes))


def plain(query: Tensor, key: Tensor, value: Tensor, **words: object) -> Tensor:
    """A correct kernel that works in the dtype throughout, as torch's math path does."""
    repeated = (t.repeat_interleave(query.shape[2] // key.shape[2], dim=2) for t in (key, value))
    k, v = (t.transpose(1, 2) for t in repeated)
    weights = (query.transpose(1, 2) * query.shape[3] ** -0.5 @ k.transpose(-2, -1)).softmax(-1)
    return (weights @ v).transpose(1, 2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("head_dim", [32, 64, 256])
def test_a_correct_kernel_passes(dtype: torch.dtype, head_dim: int) -> None:
    q, k, v = tensors(dtype, head_dim=head_dim)
    error, excess = errors(plain(q, k, v), q, k, v)
    assert error > 0
    assert excess <= 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "mistake",
    [
        lambda q, k, v: plain(q * 1.2, k, v),  # another scale
        lambda q, k, v: plain(q, k[:, :-8], v[:, :-8]),  # the ragged last block left out
        lambda q, k, v: plain(q, k.roll(1, 1), v),  # keys and values out of step
        # Grouped heads taken in turns instead of in blocks.
        lambda q, k, v: plain(q[:, :, [0, 2, 1, 3]], k, v)[:, :, [0, 2, 1, 3]],
        lambda q, k, v: plain(q, k - k.mean(1, keepdim=True), v * 0.9),  # values scaled
        # Padding keys of zeros in the softmax (SageAttention 1 does so, facts/packaging.md).
        lambda q, k, v: plain(q, *(torch.cat([t, t[:, :31] * 0], dim=1) for t in (k, v))),
    ],
    ids=["scale", "last block", "shifted", "grouping", "values", "padding"],
)
def test_the_usual_mistakes_are_caught(dtype: torch.dtype, mistake: object) -> None:
    q, k, v = tensors(dtype)
    _, excess = errors(mistake(q, k, v), q, k, v)  # type: ignore[operator]
    assert excess > 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_one_key_of_257_left_out_is_caught(dtype: torch.dtype) -> None:
    q, k, v = tensors(dtype, kv_len=257)
    _, excess = errors(plain(q, k[:, :-1], v[:, :-1]), q, k, v)
    assert excess > 1


def test_what_is_not_finite_is_infinitely_wrong() -> None:
    q, k, v = tensors(torch.float32)
    output = plain(q, k, v)
    output[0, 0, 0, 0] = torch.nan
    assert errors(output, q, k, v) == (math.inf, math.inf)


def test_a_row_that_sees_nothing_must_be_exactly_zero() -> None:
    q, k, v = tensors(torch.bfloat16)
    mask = torch.ones(33, 65, dtype=torch.bool)
    mask[4] = False
    output = attend(q, k, v, mask=mask)[0].to(torch.bfloat16)
    assert errors(output, q, k, v, mask=mask)[1] <= 1
    output[0, 4, 0, 0] = 1e-6
    assert errors(output, q, k, v, mask=mask)[1] > 1


def test_another_shape_is_an_error() -> None:
    q, k, v = tensors(torch.float32)
    with pytest.raises(ValueError, match="output has shape"):
        errors(plain(q, k, v).transpose(1, 2), q, k, v)


def test_lossy_kernels_are_allowed_more_but_not_everything() -> None:
    q, k, v = tensors(torch.bfloat16)
    near = plain(q, k, v) + 0.05 * attend(q, k, v.abs())[0].to(torch.bfloat16)
    assert errors(near, q, k, v)[1] > 1
    assert errors(near, q, k, v, fidelity=Fidelity.LOSSY)[1] <= 1
    assert errors(plain(q, k[:, :30], v[:, :30]), q, k, v, fidelity=Fidelity.LOSSY)[1] > 1
    assert tolerance(torch.float16) < tolerance(torch.bfloat16)
    assert tolerance(torch.float16, Fidelity.LOSSY) == tolerance(torch.bfloat16, Fidelity.LOSSY)
