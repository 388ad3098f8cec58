"""A token grid cut into blocks: which token is where when blocks lie one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from polyattn.call import Grid


@dataclass(frozen=True, eq=False)
class Blocks:
    """The blocks of a grid in row-major order; those at the far borders may be smaller.

    `order[p]` is the token at position p of the block order, `starts[b]` the first position of
    block b (one more entry ends the last), `of[p]` the block of position p.
    """

    order: Tensor
    of: Tensor
    sizes: Tensor
    starts: tuple[int, ...]
    identity: bool  # whether the block order is the tokens' own

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return len(self.starts) - 1

    @property
    def uniform(self) -> int | None:
        """The size that all blocks have, or None."""
        first = self.starts[1]
        return first if self.starts[-1] == first * self.count and self._even else None

    @property
    def _even(self) -> bool:
        first = self.starts[1]
        return all(start == index * first for index, start in enumerate(self.starts))

    def arranged(self, tokens: Tensor) -> Tensor:
        """[tokens, dim] in block order, contiguous."""
        return tokens.contiguous() if self.identity else tokens.index_select(0, self.order)

    def restore(self, arranged: Tensor, out: Tensor) -> None:
        """Write [tokens, dim] in block order to their places in `out`."""
        if self.identity:
            out.copy_(arranged)
        else:
            out.index_copy_(0, self.order, arranged)

    def means(self, arranged: Tensor) -> Tensor:
        """The mean of each block, in float32."""
        if (size := self.uniform) is not None:
            return arranged.view(self.count, size, -1).float().mean(dim=1)
        sums = arranged.new_zeros(self.count, arranged.shape[1], dtype=torch.float32)
        sums.index_add_(0, self.of, arranged.float())
        return sums / self.sizes[:, None]


@lru_cache(maxsize=64)
def cut(
    frames: int, height: int, width: int, block: tuple[int, int, int], device: torch.device
) -> Blocks:
    """Cut a grid into blocks of at most `block` tokens per axis."""
    sizes = (frames, height, width)
    per_axis = [torch.arange(n) // size for n, size in zip(sizes, block, strict=True)]
    _, rows, columns = (-(-n // size) for n, size in zip(sizes, block, strict=True))
    ids = (
        per_axis[0][:, None, None] * (rows * columns)
        + per_axis[1][None, :, None] * columns
        + per_axis[2]
    ).flatten()
    of, order = torch.sort(ids, stable=True)
    counts = torch.bincount(ids)
    starts = (0, *torch.cumsum(counts, 0).tolist())
    identity = bool((order == torch.arange(len(order))).all())
    return Blocks(order.to(device), of.to(device), counts.to(device), starts, identity)


def video_and_text(grid: Grid) -> tuple[slice, slice]:
    """Where the video tokens and the text tokens stand in the sequence."""
    if grid.text_first:
        return slice(grid.text, grid.text + grid.tokens), slice(0, grid.text)
    return slice(0, grid.tokens), slice(grid.tokens, grid.tokens + grid.text)
