"""The self-check: is every attention call of a forward pass counted?

While a `Tracer` is entered, each `scaled_dot_product_attention` that torch is asked for must have
been announced by a count just before it. Costs much per torch call, so it watches the first
forward pass of each component only.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.overrides import TorchFunctionMode

from polyattn import capabilities
from polyattn.errors import BypassedAttention, NonFiniteOutput
from polyattn.executions import Tally
from polyattn.integrations.kernels import TorchKernels
from polyattn.layers import Context
from polyattn.vocabulary import Fidelity

log = logging.getLogger("polyattn")


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
        self.kernels = TorchKernels()
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
            self.kernels.note(args, kwargs or {})
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


class FirstForward:
    """Traces the first forward pass of `entry`, a part of the component's `model`.

    A compiled model is not traced (the tracer's Python does not run in its graph); for one, the
    check is the reading of its code that found the sites. Under `on_substitution="error"` a
    bypass raises BypassedAttention after the pass, else it is warned of once.
    """

    def __init__(
        self, component: str, model: nn.Module, entry: nn.Module, context: Context
    ) -> None:
        self.component = component
        self.bypasses: tuple[str, ...] = ()
        self.kernels = ""  # torch's own, of the traced pass: "flash 8, math 2"
        self._model = model
        self._context = context
        self._tracer: Tracer | None = None
        self._result: str | None = None
        self._handles: list[Any] = [
            entry.register_forward_pre_hook(self._before, prepend=True),
            entry.register_forward_hook(self._after, always_call=True),
        ]

    @property
    def status(self) -> str:
        """What the check found, or why it has not looked."""
        if self._result is not None:
            return self._result
        if any(getattr(m, "_compiled_call_impl", None) is not None for m in self._model.modules()):
            return "compiled; its code was read, not traced"
        return "not run yet"

    def disarm(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _before(self, _: nn.Module, __: Any) -> None:
        if is_compiling():
            return
        if self._tracer is None and self.status == "not run yet":
            self._tracer = Tracer(self._context.tallies, self._model, self.component)
            self._tracer.start()

    def _after(self, _: nn.Module, __: Any, output: Any) -> None:
        if is_compiling() or self._tracer is None:
            return
        tracer, self._tracer = self._tracer, None
        tracer.stop()
        self.disarm()
        self.bypasses = tuple(dict.fromkeys(tracer.bypasses))
        self.kernels = str(tracer.kernels)
        tracer.kernels.warn(self.component)
        self._result = (
            f"traced: {tracer.seen} attention calls of torch, {len(tracer.bypasses)} not counted"
        )
        self._check_finite(output)
        if not self.bypasses:
            return
        message = f"Attention that polyattn does not route ran in {', '.join(self.bypasses)}."
        if self._context.preferences.on_substitution == "error":
            raise BypassedAttention(f"{message} Use --on-substitution warn to run nevertheless.")
        log.warning("%s", message)

    def _check_finite(self, output: Any) -> None:
        """Under lossy attention a first output with NaN or infinity is an error, or a warning."""
        component = self.component.partition(".")[0]
        lossy = {
            tally.selection.implementation
            for tally in self._context.tallies
            if tally.calls
            and tally.call.site
            and tally.call.site.component == component
            and capabilities.row(tally.selection.implementation).fidelity is Fidelity.LOSSY
        }
        if not lossy or all(bool(tensor.isfinite().all()) for tensor in _tensors(output)):
            return
        names = ", ".join(sorted(lossy))
        self._result = f"{self._result}; output not finite under {names}"
        message = (
            f"The first output of {self.component} holds NaN or infinite numbers under {names}, "
            "which is lossy: the picture will be black. Use an exact backend, such as "
            f"--component-attention-backends {component}=torch_sdpa."
        )
        if self._context.preferences.on_substitution == "error":
            raise NonFiniteOutput(message)
        log.warning("%s", message)


def _tensors(output: Any) -> list[Tensor]:
    """The floating tensors of a forward's output, however it is wrapped."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    parts = output.values() if isinstance(output, dict) else output
    if not isinstance(output, (dict, list, tuple)):
        return []
    return [tensor for part in parts for tensor in _tensors(part)]
