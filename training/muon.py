"""Muon: momentum made orthogonal. Equal shapes go through one batched iteration."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class Muon(torch.optim.Optimizer):
    """For parameters of two or more dimensions; what is past the first is flattened.

    torch.optim.Muon takes two dimensions only and one matrix at a time, which on small
    matrices is mostly overhead.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(
            list(params), {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[tuple[int, int], list[nn.Parameter]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    by_shape.setdefault((p.shape[0], p[0].numel()), []).append(p)
            for (rows, columns), params in by_shape.items():
                updates = []
                for p in params:
                    assert p.grad is not None
                    state = self.state[p]
                    if "momentum" not in state:
                        state["momentum"] = torch.zeros_like(p)
                    state["momentum"].lerp_(p.grad, 1 - group["momentum"])
                    nesterov = p.grad.lerp(state["momentum"], group["momentum"])
                    updates.append(nesterov.reshape(rows, columns))
                directions = orthogonalised(torch.stack(updates))
                # The size AdamW's update would have, so that both share a learning rate.
                factor = group["lr"] * 0.2 * max(rows, columns) ** 0.5
                for p, direction in zip(params, directions, strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(direction.view_as(p), alpha=-factor)


def orthogonalised(matrices: Tensor, iterations: int = 5) -> Tensor:
    """(batch, rows, columns): the nearest (semi-)orthogonal ones, by Newton-Schulz."""
    a, b, c = 3.4445, -4.7750, 2.0315
    # Half precision is enough for a direction, and four times as fast where AMX is.
    x = (matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)).bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    directions: Tensor = (x.mT if tall else x).to(matrices.dtype)
    return directions
