"""How far a correct kernel may be from the oracle: a bound from rounding, position by position.

An output is a sum of weight * value. A kernel that works in a dtype with unit roundoff u (half
the gap between 1 and the next number) rounds each weight to the dtype before the second matmul,
and the sum once at the end: two errors of at most u each, relative to sum(weight * |value|).
Kernels may also round the scaled query, which moves every weight by u times its score; scores of
the tests' data are near 1. The sum of those, doubled for safety, is 8 u. Accumulation itself is
in float32 everywhere: at most length + head_dim roundings of its u, in practice their root.

The bound is relative to sum(weight * |value|), not to the output, because outputs cancel.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from polyattn.oracle import dense
from polyattn.vocabulary import Fidelity

# Unit roundoffs times the factors explained above; float32 and float64 are all accumulation.
EXACT: Final[dict[torch.dtype, float]] = {
    torch.float64: 64 * 2.0**-53,
    torch.float32: 64 * 2.0**-24,
    torch.float16: 8 * 2.0**-11,
    torch.bfloat16: 8 * 2.0**-8,
}

# INT8 and FP4 kernels promise closeness, not rounding: a tenth of the values' magnitude tells a
# working kernel (0.01 to 0.03, facts/packaging.md section 5) from one that ignores part of a call.
LOSSY: Final = 0.1


def tolerance(dtype: torch.dtype, fidelity: Fidelity = Fidelity.EXACT) -> float:
    """The largest `excess` divisor: allowed error as a fraction of sum(weight * |value|)."""
    return EXACT[dtype] if fidelity is not Fidelity.LOSSY else max(LOSSY, EXACT[dtype])


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
    expected, _ = dense.attend(
        query, key, value, mask=mask, causal=causal, softmax_scale=softmax_scale
    )
    magnitude, _ = dense.attend(
        query, key, value.abs(), mask=mask, causal=causal, softmax_scale=softmax_scale
    )
    if output.shape != expected.shape:
        raise ValueError(f"output has shape {tuple(output.shape)}, not {tuple(expected.shape)}")
    if not bool(output.isfinite().all()):
        return float("inf"), float("inf")
    error = (output.double() - expected).abs()
    # The smallest normal number keeps a row of zeros (which sees no key) at error 0 exactly,
    # and forgives what float16 cannot represent.
    allowed = magnitude * tolerance(query.dtype, fidelity) + torch.finfo(query.dtype).tiny
    return float(error.max()), float((error / allowed).max())
