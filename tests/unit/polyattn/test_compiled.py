"""torch.compile: one graph, exact counts, forces honoured, whole and regional.

Backend "eager": dynamo's tracing is what could break here, not code generation. One slow test
generates code too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from polyattn.call import Site
from polyattn.executions import executions
from polyattn.facts import PlatformFacts
from polyattn.forcing import global_force_attn_backend_context_manager
from polyattn.integrations.diffusers import attach
from polyattn.layers import Context, LocalAttention
from polyattn.preferences import AttentionPreferences, Request
from polyattn.vocabulary import Role
from tests.small_pipelines import FAMILIES, build_wan, run_wan


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_fullgraph_counts_and_honours_a_force_without_recompiling(cpu: PlatformFacts) -> None:
    context = Context(cpu)
    attention = LocalAttention(context, Site("transformer", "a", 0, Role.SELF))
    counter = CompileCounter()

    @torch.compile(fullgraph=True, backend=counter)
    def layer(x: torch.Tensor) -> torch.Tensor:
        return attention(x, x * 2, x + 1) + 1

    x = torch.randn(1, 4, 2, 8)
    expected = attention(x, x * 2, x + 1) + 1
    for _ in range(3):
        assert torch.equal(layer(x), expected)
    with global_force_attn_backend_context_manager("fa"):
        layer(x)
    layer(x)
    assert counter.frame_count == 1
    counts = [(e.source, e.requested, e.calls) for e in executions(context.tallies)]
    assert counts == [("auto", None, 5), ("force", "fa", 1)]


def test_the_operator_passes_torchs_own_checks(cpu: PlatformFacts) -> None:
    attention = LocalAttention(Context(cpu))
    query, key, value = torch.randn(3, 1, 4, 2, 8).unbind(0)
    torch.library.opcheck(
        torch.ops.polyattn.attend,
        (query, key, value, None, attention.identity, [1, 2, 2, 0, 0], False, 0.5),
    )


def _whole(transformer: torch.nn.Module, backend: Any) -> None:
    transformer.compile(fullgraph=True, backend=backend)


def _regional(transformer: Any, backend: Any) -> None:
    transformer.compile_repeated_blocks(fullgraph=True, backend=backend)


@pytest.mark.parametrize(
    ("compile_", "layers"),
    [(_whole, 3), (_regional, 12)],  # 12 equal blocks are above dynamo's recompile limit of 8
)
def test_wan_compiles_to_one_graph_and_counts_every_block(
    cpu: PlatformFacts, compile_: Callable[[Any, Any], None], layers: int
) -> None:
    pipeline = build_wan(layers=layers)
    expected = run_wan(pipeline)
    attachment = attach(pipeline, facts=cpu)
    counter = CompileCounter()
    compile_(pipeline.transformer, counter)
    assert torch.equal(run_wan(pipeline), expected)
    assert counter.frame_count == 1
    denoiser = [e for e in attachment.report().executions if e.component == "transformer"]
    assert [(e.calls, str(e.grid)) for e in denoiser] == [(4, "3x2x3")] * layers * 2
    assert attachment.checks["transformer"].startswith("compiled")


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_compiles_whole_with_the_same_output_and_counts(
    cpu: PlatformFacts, family: Any
) -> None:
    pipeline = family.build()
    expected = family.run(pipeline)
    eager = attach(pipeline, facts=cpu)
    family.run(pipeline)
    eager.detach()
    attachment = attach(pipeline, facts=cpu)
    denoiser = pipeline.unet if hasattr(pipeline, "unet") else pipeline.transformer
    denoiser.compile(fullgraph=True, backend="eager")
    assert torch.equal(family.run(pipeline), expected)

    def counts(report: Any) -> dict[tuple[str, str], int]:
        return {(e.component, e.path): e.calls for e in report.executions}

    assert counts(attachment.report()) == counts(eager.report())


def test_two_compiled_pipelines_with_different_preferences(cpu: PlatformFacts) -> None:
    plain, asking = build_wan(), build_wan()
    attached = [
        attach(plain, facts=cpu),
        attach(asking, AttentionPreferences(backend=Request("fa")), cpu),
    ]
    for pipeline in (plain, asking):
        pipeline.transformer.compile_repeated_blocks(fullgraph=True, backend="eager")
    for pipeline in (plain, asking, plain):
        run_wan(pipeline)
    calls = [
        {(e.requested, e.calls) for e in one.report().executions if e.component == "transformer"}
        for one in attached
    ]
    assert calls == [{(None, 8)}, {("fa", 4)}]


def test_a_force_around_a_compiled_pipeline(cpu: PlatformFacts) -> None:
    pipeline = build_wan()
    attachment = attach(pipeline, facts=cpu)
    pipeline.transformer.compile(fullgraph=True, backend="eager")
    run_wan(pipeline)
    with global_force_attn_backend_context_manager("fa"):
        run_wan(pipeline)
    rows = {
        (row.requested, row.calls)
        for row in attachment.report().rows
        if row.component == "transformer"
    }
    assert rows == {(None, 8), ("fa", 8)}


@pytest.mark.slow
def test_inductor_generates_code_around_the_operator(cpu: PlatformFacts) -> None:
    pipeline = build_wan()
    expected = run_wan(pipeline)
    attachment = attach(pipeline, facts=cpu)
    pipeline.transformer.compile(fullgraph=True)
    torch.testing.assert_close(run_wan(pipeline), expected, rtol=1e-4, atol=1e-4)
    rows = [row for row in attachment.report().rows if row.component == "transformer"]
    assert [(row.role, row.calls) for row in rows] == [(Role.SELF, 8), (Role.CROSS, 8)]
