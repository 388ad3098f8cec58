"""Forces nest, end with their scope, and reach no other thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from polyattn.errors import UnknownName
from polyattn.forcing import (
    forced,
    global_force_attn_backend,
    global_force_attn_backend_context_manager,
)


@pytest.fixture(autouse=True)
def _lifted() -> Iterator[None]:
    yield
    global_force_attn_backend(None)


def now() -> str | None:
    request = forced()
    return None if request is None else str(request)


def test_nothing_is_forced_at_first() -> None:
    assert now() is None


def test_contexts_nest_and_the_inner_one_wins() -> None:
    with global_force_attn_backend_context_manager("torch_sdpa"):
        assert now() == "torch_sdpa"
        with global_force_attn_backend_context_manager("fa3"):
            assert now() == "fa3"
        assert now() == "torch_sdpa"
    assert now() is None


def test_the_context_stands_above_the_process() -> None:
    global_force_attn_backend("fa")
    assert now() == "fa"
    with global_force_attn_backend_context_manager("torch_sdpa"):
        assert now() == "torch_sdpa"
        global_force_attn_backend("sage_attn")  # set within, seen after
        assert now() == "torch_sdpa"
    assert now() == "sage_attn"
    global_force_attn_backend(None)
    assert now() is None


def test_an_exception_ends_the_force() -> None:
    with pytest.raises(RuntimeError), global_force_attn_backend_context_manager("fa"):
        raise RuntimeError
    assert now() is None


def test_an_unknown_name_forces_nothing() -> None:
    global_force_attn_backend("fa")
    with pytest.raises(UnknownName):
        global_force_attn_backend("fla")
    with pytest.raises(UnknownName), global_force_attn_backend_context_manager("fla"):
        pass
    assert now() == "fa"


def test_a_context_reaches_no_other_thread_but_the_process_does() -> None:
    seen: dict[str, str | None] = {}

    def look(name: str) -> None:
        seen[name] = now()

    with global_force_attn_backend_context_manager("fa"):
        thread = threading.Thread(target=look, args=["under a context"])
        thread.start()
        thread.join()
    global_force_attn_backend("torch_sdpa")
    thread = threading.Thread(target=look, args=["under the process"])
    thread.start()
    thread.join()
    assert seen == {"under a context": None, "under the process": "torch_sdpa"}


def test_threads_force_independently() -> None:
    both_inside = threading.Barrier(2, timeout=10)
    seen: dict[str, str | None] = {}

    def work(name: str) -> None:
        with global_force_attn_backend_context_manager(name):
            both_inside.wait()
            seen[name] = now()
            both_inside.wait()

    threads = [threading.Thread(target=work, args=[name]) for name in ("fa", "torch_sdpa")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"fa": "fa", "torch_sdpa": "torch_sdpa"}
    assert now() is None


def test_tasks_force_independently() -> None:
    async def work(name: str) -> str | None:
        with global_force_attn_backend_context_manager(name):
            await asyncio.sleep(0)
            return now()

    async def both() -> list[str | None]:
        return await asyncio.gather(work("fa"), work("torch_sdpa"))

    assert asyncio.run(both()) == ["fa", "torch_sdpa"]
    assert now() is None


def test_it_decorates_functions_too() -> None:
    @global_force_attn_backend_context_manager("fa2")
    def work() -> str | None:
        return now()

    assert work() == work() == "fa2"
    assert now() is None
