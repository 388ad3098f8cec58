"""Video sparse attention by gathered key lists: per head and cube, without masks or padding.

Cubes of 4x4x4 tokens. The scores of cube means choose the cubes whose tokens a cube attends to;
their keys and values are gathered, in ascending order, into buffers that are allocated once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import torch
from torch import Tensor

from polyattn.call import Grid
from polyattn.sparse.attention import attend
from polyattn.sparse.blocks import Blocks, cut, video_and_text
from polyattn.sparse.heads import each_head
from polyattn.sparse.options import Triple

CUBE: Final[Triple] = (4, 4, 4)
_TOKENS: Final = 64
# Query cubes whose token lists are made at once: bounds the lists to some MB.
_AT_ONCE: Final = 128


def _by_blocks(sparsity: float, blocks: int, tokens: int) -> int:
    return min(max(math.ceil((1 - sparsity) * blocks), 1), blocks)


def _by_tokens(sparsity: float, blocks: int, tokens: int) -> int:
    return min(max(math.ceil((1 - sparsity) * tokens / _TOKENS), 1), blocks)


# How many cubes are kept, by the name of the rule: (sparsity, cubes, tokens) -> cubes.
TOPK_RULES: Final[dict[str, Callable[[float, int, int], int]]] = {
    "blocks": _by_blocks,
    "tokens": _by_tokens,
}


def kept(grid: Grid, sparsity: float, rule: str) -> tuple[int, int]:
    """How many cubes a cube attends to, and how many there are."""
    sizes = (grid.frames, grid.height, grid.width)
    count = math.prod(-(-n // c) for n, c in zip(sizes, CUBE, strict=True))
    return TOPK_RULES[rule](sparsity, count, grid.tokens), count


def best(scores: Tensor, topk: int) -> Tensor:
    """Per row the `topk` highest scores' places, ascending. Of equal scores the first counts."""
    ranked = torch.sort(scores, dim=-1, descending=True, stable=True).indices
    return ranked[..., :topk].sort(dim=-1).values


def video_sparse(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grid: Grid,
    topk: int,
    scale: float,
    *,
    coarse: bool = False,
    gate: Tensor | None = None,
) -> Tensor:
    """[batch, sequence, heads, dim]. Text sees and is seen by all.

    `coarse` adds the attention over cube means, times `gate` [batch, video tokens, heads, dim]
    where there is one.
    """
    blocks = cut(grid.frames, grid.height, grid.width, CUBE, query.device)
    video, text = video_and_text(grid)
    out = torch.empty_like(query)

    def one_head(head: int) -> None:
        for batch in range(query.shape[0]):
            q, k, v, o = (tensor[batch, :, head] for tensor in (query, key, value, out))
            gated = None if gate is None else gate[batch, :, head]
            if grid.text:
                o[text] = attend(q[text][None], k[None], v[None], scale)[0]
            if topk >= blocks.count and not coarse:
                o[video] = attend(q[video][None], k[None], v[None], scale)[0]
                continue
            arranged = (blocks.arranged(q[video]), blocks.arranged(k[video]))
            arranged_v = blocks.arranged(v[video])
            result = _head(*arranged, arranged_v, k[text], v[text], blocks, topk, scale)
            if coarse:
                result = result.float() + _coarse(*arranged, arranged_v, gated, blocks, scale)
            blocks.restore(result.to(o.dtype), o[video])

    each_head(query, query.shape[2], one_head)
    return out


def _scores(query: Tensor, key: Tensor, blocks: Blocks, scale: float) -> Tensor:
    # In float32 throughout: upstream rounds the means to the tensors' dtype, which in bfloat16
    # makes ties that no rule decides.
    return blocks.means(query) @ blocks.means(key).t() * scale


def _coarse(
    query: Tensor, key: Tensor, value: Tensor, gate: Tensor | None, blocks: Blocks, scale: float
) -> Tensor:
    """Attention over cube means (not weighted by cube size, as upstream), for every token."""
    weights = _scores(query, key, blocks, scale).softmax(dim=-1)
    spread = (weights @ blocks.means(value)).index_select(0, blocks.of)
    return spread if gate is None else spread * blocks.arranged(gate).float()


def _head(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    text_key: Tensor,
    text_value: Tensor,
    blocks: Blocks,
    topk: int,
    scale: float,
) -> Tensor:
    """One head in block order: each cube over its chosen cubes and the text."""
    chosen = best(_scores(query, key, blocks, scale), topk)
    words, size = len(text_key), blocks.uniform
    keys = key.new_empty(1, words + topk * math.prod(CUBE), key.shape[1])
    values = torch.empty_like(keys)
    keys[0, :words], values[0, :words] = text_key, text_value
    out = torch.empty_like(query)
    # Whole cubes are gathered where all have one size: long rows copy faster than tokens.
    if size is not None:
        lists: Iterable[Tensor] = chosen.unbind(0)
        key, value = key.view(blocks.count, -1), value.view(blocks.count, -1)
    else:
        lists = _token_lists(chosen, blocks)
    for block, ids in enumerate(lists):
        seen = slice(words, words + len(ids) * (size or 1))
        torch.index_select(key, 0, ids, out=keys[0, seen].view(len(ids), -1))
        torch.index_select(value, 0, ids, out=values[0, seen].view(len(ids), -1))
        rows = slice(blocks.starts[block], blocks.starts[block + 1])
        part = attend(query[None, rows], keys[:, : seen.stop], values[:, : seen.stop], scale)
        out[rows] = part[0]
    return out


def _token_lists(chosen: Tensor, blocks: Blocks) -> Iterator[Tensor]:
    """Per row of block numbers, the positions of their tokens."""
    within = torch.arange(math.prod(CUBE), device=chosen.device)
    starts = torch.tensor(blocks.starts[:-1], device=chosen.device)
    positions, exist = starts[:, None] + within, within < blocks.sizes[:, None]
    for part in torch.split(chosen, _AT_ONCE):
        present = exist[part]
        counts = present.sum(dim=(1, 2)).tolist()
        yield from torch.split(positions[part][present], counts)
