"""attach(pipeline): same bits, every call counted with its site, nothing left behind."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from diffusers.models import attention_dispatch
from torch import nn
from torch.nn import functional

from polyattn.errors import BypassedAttention, NotAttached, UnknownName, UnsupportedCall
from polyattn.facts import PlatformFacts
from polyattn.integrations import standins
from polyattn.integrations.diffusers import attach, detach
from polyattn.integrations.identity import CURRENT
from polyattn.preferences import AttentionPreferences, Request
from polyattn.vocabulary import Role
from tests.small_pipelines import FAMILIES, Family, build_wan, run_wan

# component -> role -> (sites, calls, grids): counted by hand from each family's code.
# Two steps; guidance doubles Wan's forwards and batches SD3's and SDXL's.
EXPECTED: dict[str, dict[str, dict[Role, tuple[int, int, set[str]]]]] = {
    "wan": {
        "text_encoder": {Role.SELF: (2, 2, {"None"})},
        "transformer": {Role.SELF: (2, 8, {"3x2x3"}), Role.CROSS: (2, 8, {"3x2x3"})},
        "vae": {Role.SELF: (1, 3, {"1x4x6"})},
    },
    "flux": {
        "text_encoder": {Role.SELF: (3, 3, {"None"})},
        "text_encoder_2": {Role.SELF: (2, 2, {"None"})},
        "transformer": {Role.JOINT: (4, 8, {"1x8x12 + 9 text tokens"})},
        "vae": {Role.SELF: (1, 1, {"1x16x24"})},
    },
    "sd3": {
        "text_encoder": {Role.SELF: (3, 3, {"None"})},
        "text_encoder_2": {Role.SELF: (3, 3, {"None"})},
        "text_encoder_3": {Role.SELF: (2, 2, {"None"})},
        "transformer": {
            Role.JOINT: (2, 4, {"1x8x16 + 9 text tokens"}),
            Role.SELF: (1, 2, {"1x8x16"}),
        },
        "vae": {Role.SELF: (1, 1, {"1x16x32"})},
    },
    "sdxl": {
        "text_encoder": {Role.SELF: (3, 3, {"None"})},
        "text_encoder_2": {Role.SELF: (3, 3, {"None"})},
        "unet": {Role.SELF: (4, 8, {"1x8x12"}), Role.CROSS: (4, 8, {"1x8x12"})},
        "vae": {Role.SELF: (1, 1, {"1x16x24"})},
    },
}

by_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def _state(pipeline: Any) -> dict[str, Any]:
    """Everything about a pipeline that attach() might change: classes, attributes, hooks."""
    return {
        f"{name}.{path}": (
            type(module),
            type(getattr(module, "processor", None)),
            id(getattr(module, "processor", None)),
            sorted(vars(module)),
            sorted(vars(getattr(module, "processor", object)) or ()),
            len(module._forward_pre_hooks),
            len(module._forward_hooks),
        )
        for name, component in pipeline.components.items()
        if isinstance(component, nn.Module)
        for path, module in component.named_modules()
    }


def _module_names() -> dict[str, Any]:
    """The names that stand-ins may take, in every loaded diffusers module, and torch's own."""
    names: dict[str, Any] = {
        f"{module_name}.{name}": vars(module)[name]
        for module_name, module in sys.modules.copy().items()
        if module_name.startswith("diffusers.")
        for name in ("F", "dispatch_attention_fn")
        if name in vars(module)
    }
    names["torch"] = functional.scaled_dot_product_attention
    return names


@by_family
def test_output_is_bit_identical_and_every_call_is_counted(
    family: Family, cpu: PlatformFacts
) -> None:
    pipeline = family.build()
    expected = family.run(pipeline)
    assert expected.isfinite().all()
    attachment = attach(pipeline, facts=cpu)
    assert torch.equal(family.run(pipeline), expected)
    report = attachment.report()
    found: dict[str, dict[Role, tuple[int, int, set[str]]]] = {}
    for row in report.rows:
        grids = {
            str(e.grid)
            for e in report.executions
            if (e.component, e.role) == (row.component, row.role)
        }
        found.setdefault(row.component, {})[row.role] = (row.sites, row.calls, grids)
    assert found == EXPECTED[family.name]
    assert report.bypasses == ()


@by_family
def test_tracer_saw_every_component_and_no_bypass(family: Family, cpu: PlatformFacts) -> None:
    pipeline = family.build()
    attachment = attach(pipeline, facts=cpu)
    family.run(pipeline)
    ran = {name: text for name, text in attachment.checks.items() if name != "vae.encoder"}
    assert set(ran) == {*(set(EXPECTED[family.name]) - {"vae"}), "vae.decoder"}
    for text in ran.values():
        assert text.startswith("traced: ")
        assert not text.startswith("traced: 0 ")
        assert text.endswith(", 0 not counted")


@by_family
def test_detach_restores_exactly(family: Family, cpu: PlatformFacts) -> None:
    pipeline = family.build()
    expected = family.run(pipeline)
    before, names = _state(pipeline), _module_names()
    attachment = attach(pipeline, facts=cpu)
    assert _state(pipeline) != before
    family.run(pipeline)
    detach(pipeline)
    assert _state(pipeline) == before
    assert _module_names() == names
    calls = attachment.report().calls
    assert torch.equal(family.run(pipeline), expected)
    assert attachment.report().calls == calls
    with pytest.raises(NotAttached):
        attachment.detach()


@by_family
def test_a_second_pipeline_that_is_not_attached_is_unaffected(
    family: Family, cpu: PlatformFacts
) -> None:
    attached, plain = family.build(), family.build()
    expected, before = family.run(plain), _state(plain)
    attachment = attach(attached, facts=cpu)
    family.run(attached)
    calls = attachment.report().calls
    assert torch.equal(family.run(plain), expected)
    assert _state(plain) == before
    assert attachment.report().calls == calls


def test_attaching_leaves_torch_and_diffusers_dispatcher_alone(cpu: PlatformFacts) -> None:
    active = attention_dispatch._AttentionBackendRegistry.get_active_backend()
    members = set(attention_dispatch.AttentionBackendName.__members__)
    torch_function = functional.scaled_dot_product_attention
    pipeline = build_wan()
    attach(pipeline, facts=cpu)
    run_wan(pipeline)
    assert attention_dispatch._AttentionBackendRegistry.get_active_backend() == active
    assert set(attention_dispatch.AttentionBackendName.__members__) == members
    assert functional.scaled_dot_product_attention is torch_function
    detach(pipeline)


def test_two_attached_pipelines_detach_in_any_order(cpu: PlatformFacts) -> None:
    names = _module_names()
    first, second = build_wan(), build_wan()
    expected = run_wan(first)
    one, two = attach(first, facts=cpu), attach(second, facts=cpu)
    run_wan(first)
    one.detach()
    assert torch.equal(run_wan(second), expected)
    assert (one.report().calls, two.report().calls) == (21, 21)
    two.detach()
    assert {name: _module_names()[name] for name in names} == names


def test_processors_keep_their_name_for_diffusers(cpu: PlatformFacts) -> None:
    pipeline = build_wan()
    processors = {k: type(v) for k, v in pipeline.transformer.attn_processors.items()}
    attach(pipeline, facts=cpu)
    for name, processor in pipeline.transformer.attn_processors.items():
        assert isinstance(processor, processors[name])
        assert type(processor).__name__ == processors[name].__name__
    detach(pipeline)


def test_one_processor_shared_by_all_modules_still_has_many_sites(cpu: PlatformFacts) -> None:
    from diffusers.models.transformers.transformer_wan import WanAttnProcessor

    pipeline = build_wan()
    shared = WanAttnProcessor()
    pipeline.transformer.set_attn_processor(shared)
    expected = run_wan(pipeline)
    attachment = attach(pipeline, facts=cpu)
    assert torch.equal(run_wan(pipeline), expected)
    paths = {e.path for e in attachment.report().executions if e.component == "transformer"}
    assert len(paths) == 4
    attachment.detach()
    assert set(map(id, pipeline.transformer.attn_processors.values())) == {id(shared)}
    assert type(shared) is WanAttnProcessor


def test_component_and_role_requests_reach_their_sites(cpu: PlatformFacts) -> None:
    pipeline = build_wan()
    preferences = AttentionPreferences(
        backend=Request("fa"), roles=(("transformer", Role.CROSS, Request("torch_sdpa")),)
    )
    attachment = attach(pipeline, preferences, cpu)
    run_wan(pipeline)
    rows = {(r.component, r.role): (r.source, r.requested) for r in attachment.report().rows}
    assert rows == {
        ("text_encoder", Role.SELF): ("auto", None),
        ("transformer", Role.SELF): ("flag", "fa"),
        ("transformer", Role.CROSS): ("role", "torch_sdpa"),
        ("vae", Role.SELF): ("auto", None),
    }


def test_unknown_component_is_refused_by_name_and_nothing_stays_attached(
    cpu: PlatformFacts,
) -> None:
    pipeline = build_wan()
    before = _state(pipeline)
    preferences = AttentionPreferences(components=(("transfomer", Request("torch_sdpa")),))
    with pytest.raises(UnknownName, match="'transformer'"):
        attach(pipeline, preferences, cpu)
    assert _state(pipeline) == before


def test_attaching_twice_is_refused(cpu: PlatformFacts) -> None:
    pipeline = build_wan()
    attach(pipeline, facts=cpu)
    with pytest.raises(NotAttached, match="attached already"):
        attach(pipeline, facts=cpu)
    detach(pipeline)


class _Bypassing:
    """A user's processor that attends behind every seam."""

    def __call__(self, attn: Any, hidden_states: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        attend = torch.nn.functional.scaled_dot_product_attention
        query = attn.to_q(hidden_states).unflatten(2, (attn.heads, -1)).transpose(1, 2)
        return attn.to_out[0](attend(query, query, query).transpose(1, 2).flatten(2))


def _with_bypass() -> Any:
    pipeline = build_wan()
    pipeline.transformer.blocks[1].attn1.processor = _Bypassing()
    return pipeline


def test_attention_that_no_stand_in_reaches_is_named(
    cpu: PlatformFacts, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = _with_bypass()
    attachment = attach(pipeline, facts=cpu)
    run_wan(pipeline)
    (bypass, *_) = attachment.report().bypasses
    assert "transformer.blocks.1.attn1" in bypass
    assert "transformer.blocks.1.attn1" in caplog.text


def test_attention_that_no_stand_in_reaches_is_refused_under_error(cpu: PlatformFacts) -> None:
    pipeline = _with_bypass()
    before = _state(pipeline)
    with pytest.raises(BypassedAttention, match=r"blocks\.1\.attn1"):
        attach(pipeline, AttentionPreferences(on_substitution="error"), cpu)
    assert _state(pipeline) == before


def test_dropout_is_refused_rather_than_dropped(cpu: PlatformFacts) -> None:
    pipeline = build_wan()
    attachment = attach(pipeline, facts=cpu)
    module = sys.modules[type(pipeline.transformer.blocks[0].attn1).__module__]
    processor = pipeline.transformer.blocks[0].attn1.processor
    query = torch.randn(1, 4, 2, 8)
    CURRENT.layer = processor._polyattn_layer
    try:
        with pytest.raises(UnsupportedCall, match=r"dropout_p=0\.1"):
            module.dispatch_attention_fn(query, query, query, dropout_p=0.1)
    finally:
        CURRENT.layer = None
    attachment.detach()


class _BlockMask:
    """What flex attention takes for a mask."""


def test_a_kernels_own_mask_goes_to_diffusers_and_is_named(cpu: PlatformFacts) -> None:
    pipeline = build_wan()
    seen: list[Any] = []

    def own(query: torch.Tensor, *args: Any, **_: Any) -> torch.Tensor:
        seen.append(args[2])
        return query

    standin = standins._dispatch_standin(own)
    attachment = attach(pipeline, facts=cpu)
    mask, query = _BlockMask(), torch.randn(1, 4, 2, 8)
    CURRENT.layer = pipeline.transformer.blocks[0].attn1.processor._polyattn_layer
    try:
        for _ in range(2):
            assert standin(query, query, query, mask) is query
    finally:
        CURRENT.layer = None
    assert seen == [mask, mask]
    (bypass,) = attachment.report().bypasses
    assert bypass.startswith("transformer.blocks.0.attn1 attends by a _BlockMask")
    attachment.detach()


def test_an_exception_inside_a_site_leaves_no_site_current(cpu: PlatformFacts) -> None:
    pipeline = build_wan()
    attach(pipeline, facts=cpu)
    with pytest.raises(RuntimeError):
        pipeline.transformer.blocks[0].attn1(torch.randn(1, 4, 999))
    assert CURRENT.layer is None
    detach(pipeline)


def test_a_processor_exchanged_after_attach_is_not_passed_over_in_silence(
    cpu: PlatformFacts,
) -> None:
    from diffusers.models.transformers.transformer_wan import WanAttnProcessor

    pipeline = build_wan()
    attachment = attach(pipeline, facts=cpu)
    run_wan(pipeline)
    pipeline.transformer.blocks[0].attn2.set_processor(WanAttnProcessor())
    run_wan(pipeline)
    (bypass,) = attachment.report().bypasses
    assert bypass == "transformer.blocks.0.attn2: its processor was exchanged after attach()"
    detach(pipeline)


def test_a_model_under_two_names_is_attached_once(cpu: PlatformFacts) -> None:
    pipeline = build_wan()
    pipeline.register_modules(transformer_2=pipeline.transformer)
    expected = run_wan(pipeline)
    attachment = attach(pipeline, facts=cpu)
    assert torch.equal(run_wan(pipeline), expected)
    assert {e.component for e in attachment.report().executions} == set(EXPECTED["wan"])
    detach(pipeline)
