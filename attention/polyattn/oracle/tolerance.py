"""How far a correct kernel may be from the oracle: a bound from rounding, position by position.

An output is a sum of weight * value. A kernel that works in a dtype with unit roundoff u (half
the gap between 1 and the next number) rounds each weight to the dtype before the second matmul,
and the sum once at the end: two errors of at most u each, relative to sum(weight * |value|).
Kernels may also round the scaled query, which moves a weight by u times its score, and scores are
of size 1 here. The sum of those, doubled for safety, is 8 u. Accumulation is in float32: each of
head_dim + kv_len additions may round, so float32 itself gets 512 u, the classical bound for the
sizes that are tested (approximate exponentials of vector libraries, 20 u, fit into it).

The bound is relative to sum(weight * |value|), not to the output, because outputs cancel. One key
of 257 wrongly left out moves an output by 1/257 of it: beyond 8 u of float16, not of bfloat16.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from polyattn.oracle import dense
from polyattn.vocabulary import Fidelity

# Unit roundoffs times the factors explained above.
EXACT: Final[dict[torch.dtype, float]] = {
    torch.float64: 512 * 2.0**-53,
    torch.float32: 512 * 2.0**-24,
    torch.float16: 8 * 2.0**-11,
    torch.bfloat16: 8 * 2.0**-8,
}

# INT8 and FP4 kernels promise closeness, not rounding: a tenth of the values' magnitude tells a
# working kernel (0.01 to 0.03, facts/packaging.md section 5) from one that ignores part of a call.
LOSSY: Final = 0.1


def tolerance(dtype: torch.dtype, fidelity: Fidelity = Fidelity.EXACT) -> float:
    """The allowed error as a fraction of sum(weight * |value|)."""
    return LOSSY if fidelity is Fidelity.LOSSY else EXACT[dtype]


def errors(
    output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    softmax_scale: float | None = None,
    fidelity: Fidelity = Fidelity.EXACT,
) -> tuple[float, float]:
    """The largest absolute error of `output`, and the largest one in units of what is allowed.

    The second is at most 1 for a correct kernel, and inf where the output is not finite.
    """
    # Attention is linear in the values: one pass gives the output and sum(weight * |value|).
    both = torch.cat([value.double(), value.double().abs()], dim=-1)
    result, log_sum_exp = dense.attend(
        query, key, both, mask=mask, causal=causal, softmax_scale=softmax_scale
    )
    expected, magnitude = result.chunk(2, dim=-1)
    if output.shape != expected.shape:
        raise ValueError(f"output has shape {tuple(output.shape)}, not {tuple(expected.shape)}")
    if not bool(output.isfinite().all()):
        return float("inf"), float("inf")
    error = (output.double() - expected).abs()
    # float16 has no numbers between 0 and its `tiny`; elsewhere this is nothing.
    allowed = magnitude * tolerance(query.dtype, fidelity) + torch.finfo(query.dtype).tiny
    # A row that sees no key is defined as zeros: nothing is allowed there.
    unseeing = log_sum_exp.isneginf().transpose(1, 2).unsqueeze(-1)
    allowed = allowed.masked_fill(unseeing, torch.finfo(torch.float64).tiny)
    return float(error.max()), float((error / allowed).max())
