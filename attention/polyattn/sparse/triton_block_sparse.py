"""One Triton forward kernel for all three sparse backends: attention over lists of key blocks.

A query block is up to BLOCK_M tokens named by their places in the sequence, a key block up to
BLOCK_N; places of -1 are padding. Each query block walks its own list of key blocks. Rows are read
where they lie, so nothing is permuted or padded in memory. With OUT_BY_SLOT, results go to the
query block's slots instead of its tokens' places, for pairs that are merged afterwards (VMoBA).

Compiled ahead of time for every promised architecture and run under Triton's interpreter by
tests/unit/polyattn/test_sparse_triton.py; not run on hardware.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E: Final = tl.constexpr(1.4426950408889634)
LN_2: Final = tl.constexpr(0.6931471805599453)


@triton.jit
def block_sparse_forward(
    query,
    key,
    value,
    out,
    lse,
    query_tokens,  # [groups, query blocks, BLOCK_M] int32
    key_tokens,  # [key blocks, BLOCK_N] int32
    counts,  # [groups, query blocks] int32: how many of `lists` count
    lists,  # [groups, query blocks, width] int32
    scale,
    heads,
    query_blocks,
    width,
    stride_qb,
    stride_qs,
    stride_qh,
    stride_kb,
    stride_ks,
    stride_kh,
    stride_vb,
    stride_vs,
    stride_vh,
    stride_ob,
    stride_os,
    stride_oh,
    stride_lb,
    stride_ls,
    stride_lh,
    token_groups,  # 1 where all heads share query_tokens, else batch * heads
    list_groups,  # the same for counts and lists
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,  # HEAD_DIM rounded up to a power of two
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    OUT_BY_SLOT: tl.constexpr,
):
    """Programs: (query block, batch * heads)."""
    block = tl.program_id(0)
    group = tl.program_id(1)
    batch = (group // heads).to(tl.int64)
    head = (group % heads).to(tl.int64)
    token_row = (group % token_groups).to(tl.int64) * query_blocks + block
    list_row = (group % list_groups).to(tl.int64) * query_blocks + block

    slots = tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, BLOCK_D)
    in_dim = dims < HEAD_DIM
    places = tl.load(query_tokens + token_row * BLOCK_M + slots)
    there = places >= 0
    rows = tl.maximum(places, 0).to(tl.int64)
    q = tl.load(
        query + batch * stride_qb + head * stride_qh + rows[:, None] * stride_qs + dims[None, :],
        mask=there[:, None] & in_dim[None, :],
        other=0.0,
    )
    # Scores are kept in powers of two: exp2 is what the hardware has.
    to_log2 = scale * LOG2_E
    highest = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    result = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    keys = key + batch * stride_kb + head * stride_kh
    values = value + batch * stride_vb + head * stride_vh
    count = tl.load(counts + list_row)
    for entry in range(count):
        number = tl.load(lists + list_row * width + entry).to(tl.int64)
        seen = tl.load(key_tokens + number * BLOCK_N + columns)
        exists = seen >= 0
        at = tl.maximum(seen, 0).to(tl.int64)
        k = tl.load(
            keys + at[None, :] * stride_ks + dims[:, None],
            mask=exists[None, :] & in_dim[:, None],
            other=0.0,
        )
        scores = tl.dot(q, k) * to_log2
        scores = tl.where(exists[None, :], scores, float("-inf"))
        above = tl.maximum(highest, tl.max(scores, 1))
        # A block without a token leaves -inf - -inf; nothing was seen then, so 0 is as good.
        base = tl.where(above == float("-inf"), 0.0, above)
        weights = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(highest - base)
        v = tl.load(
            values + at[:, None] * stride_vs + dims[None, :],
            mask=exists[:, None] & in_dim[None, :],
            other=0.0,
        )
        total = total * shrink + tl.sum(weights, 1)
        result = result * shrink[:, None] + tl.dot(weights.to(v.dtype), v)
        highest = above
    # A row that sees nothing gives zeros and -inf, as the oracle defines.
    blind = total == 0.0
    result = result / tl.where(blind, 1.0, total)[:, None]
    log_sum = tl.where(blind, float("-inf"), (highest + tl.log2(total)) * LN_2)
    if OUT_BY_SLOT:
        rows = block.to(tl.int64) * BLOCK_M + slots
    tl.store(
        out + batch * stride_ob + head * stride_oh + rows[:, None] * stride_os + dims[None, :],
        result.to(out.dtype.element_ty),
        mask=there[:, None] & in_dim[None, :],
    )
    tl.store(lse + batch * stride_lb + head * stride_lh + rows * stride_ls, log_sum, mask=there)


def shape_of(head_dim: int) -> dict[str, Any]:
    """Block sizes and launch settings by head_dim: the tiles must fit 99 KiB of shared memory."""
    wide = head_dim > 128
    return {
        "HEAD_DIM": head_dim,
        "BLOCK_D": max(16, triton.next_power_of_2(head_dim)),
        "BLOCK_M": BLOCK_M,
        "BLOCK_N": BLOCK_N,
        "num_warps": 8 if wide else 4,
        "num_stages": 1 if wide else 2,
    }


BLOCK_M: Final = 64
BLOCK_N: Final = 64


def block_sparse(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_tokens: Tensor,
    key_tokens: Tensor,
    counts: Tensor,
    lists: Tensor,
    scale: float,
    *,
    out: Tensor | None = None,
    by_slot: bool = False,
) -> tuple[Tensor, Tensor]:
    """Attention of [batch, sequence, heads, dim] over block lists, and its log-sum-exp.

    query_tokens [1 or batch * heads, query blocks, BLOCK_M], key_tokens [key blocks, BLOCK_N],
    counts [1 or batch * heads, query blocks], lists [the same, width]: int32, contiguous. The last
    dimension of query, key and value is contiguous. Returns out [batch, sequence, heads, dim] and
    lse [batch, sequence, heads] in float32; by slot, "sequence" is query blocks * BLOCK_M, out is
    float32, and slots of padding are not written.
    """
    batch, length, heads, head_dim = query.shape
    query_blocks, width = lists.shape[1:]
    if by_slot:
        length = query_blocks * BLOCK_M
    if out is None:
        dtype = torch.float32 if by_slot else query.dtype
        out = query.new_empty(batch, length, heads, head_dim, dtype=dtype)
    lse = query.new_empty(batch, length, heads, dtype=torch.float32)
    block_sparse_forward[(query_blocks, batch * heads)](
        query,
        key,
        value,
        out,
        lse,
        query_tokens,
        key_tokens,
        counts,
        lists,
        scale,
        heads,
        query_blocks,
        width,
        *query.stride()[:3],
        *key.stride()[:3],
        *value.stride()[:3],
        *out.stride()[:3],
        *lse.stride(),
        query_tokens.shape[0],
        lists.shape[0],
        OUT_BY_SLOT=by_slot,
        **shape_of(head_dim),
    )
    return out, lse
