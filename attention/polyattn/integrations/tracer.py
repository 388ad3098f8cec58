"""The self-check: is every attention call of a forward pass counted?

While a `Tracer` is entered, each `scaled_dot_product_attention` that torch is asked for must have
been announced by a count just before it. Costs much per torch call, so it watches the first
forward pass of each component only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from polyattn.executions import Tally


class Tracer(TorchFunctionMode):
    """Watches torch's attention function against the tallies.

    `seen` counts torch's attention calls, `bypasses` names where one was not announced.
    """

    def __init__(self, tallies: list[Tally], root: nn.Module, component: str) -> None:
        super().__init__()
        self._tallies = tallies
        self._root = root
        self._component = component
        self._counted = self._count()
        self.bypasses: list[str] = []
        self.seen = 0

    def start(self) -> None:
        """Watch from here on."""
        self.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Watch no longer."""
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            self.seen += 1
            counted = self._count()
            if counted == self._counted:
                self.bypasses.append(self._where())
            self._counted = counted
        return func(*args, **(kwargs or {}))

    def _count(self) -> int:
        return sum(tally.calls for tally in self._tallies)

    def _where(self) -> str:
        """The innermost module of the component on the stack."""
        paths = {id(module): path for path, module in self._root.named_modules()}
        frame = sys._getframe(2)
        while frame is not None:
            owner = frame.f_locals.get("self")
            if id(owner) in paths and isinstance(owner, nn.Module):
                path = paths[id(owner)]
                where = f"{self._component}.{path}" if path else self._component
                return f"{where} ({type(owner).__name__})"
            frame = frame.f_back  # type: ignore[assignment]
        return self._component
