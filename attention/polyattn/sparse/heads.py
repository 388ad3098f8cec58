"""One head per worker: the sparse kernels are many small operations, which OpenMP splits badly.

With every thread of torch's on another head, each single-threaded, the three kernels were 1.7 to
3.8 times as fast as dense attention on two cores; with OpenMP inside each small operation they
were slower than dense wherever another process held a core (barriers spin).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch
from torch import Tensor

from polyattn.errors import UnsupportedCall


def each_head(like: Tensor, heads: int, work: Callable[[int], None]) -> None:
    """Call `work(head)` for every head. Results do not depend on the number of workers."""
    if torch.is_grad_enabled() and like.requires_grad:
        raise UnsupportedCall(
            "The sparse kernels compute no gradients. Generate under torch.no_grad(), or use "
            "torch_sdpa to train."
        )
    threads = min(torch.get_num_threads(), heads)
    # Grad and inference mode are per thread: workers take over the caller's.
    inference = torch.is_inference_mode_enabled()

    def one(head: int) -> None:
        # The pieces belong to one counted call: the check of the first forward pass, a torch
        # function mode, must not take them for attention that nobody counted.
        with torch.inference_mode(inference), torch.no_grad(), torch._C.DisableTorchFunction():
            work(head)

    if like.device.type != "cpu" or threads == 1:
        for head in range(heads):
            one(head)
        return
    # list() waits for all and raises what a worker raised.
    list(_workers(threads).map(one, range(heads)))


@cache
def _workers(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(
        threads, "polyattn-head", initializer=torch.set_num_threads, initargs=(1,)
    )
