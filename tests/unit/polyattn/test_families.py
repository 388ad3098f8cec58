"""Every known family of diffusers: same bits, nothing bypasses, roles and grids right.

The expected roles and grids are read from each family's attention processor and from the sizes
in tests/small_models.py, by hand.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from polyattn.errors import BypassedAttention
from polyattn.facts import PlatformFacts
from polyattn.integrations.diffusers import attach
from polyattn.integrations.families import FAMILIES, UNKNOWN, family_of
from polyattn.preferences import AttentionPreferences
from tests.small_encoders import ENCODERS, GEMMA2, Encoder
from tests.small_models import DENOISERS, Denoiser
from tests.small_vaes import VAES, Vae

# (role, grid, how many sites have it): the grid of a site whose queries are not on it is None.
Expected = set[tuple[str, str, int]]

EXPECTED: dict[str, Expected] = {
    # attn2 attends to the words and to the image's tokens.
    "Wan I2V": {("self", "3x2x3", 2), ("cross", "3x2x3", 2)},
    "Wan VACE": {("self", "3x2x3", 4), ("cross", "3x2x3", 4)},
    "SkyReels V2": {("self", "3x2x3", 2), ("cross", "3x2x3", 2)},
    "HunyuanVideo": {("joint", "3x2x4 + 7 text tokens", 2), ("self", "None", 1)},
    # Seven words of the first encoder, four of the second, three image tokens.
    "HunyuanVideo 1.5": {("joint", "3x2x4 + 14 text tokens", 2), ("self", "None", 1)},
    "HunyuanImage": {("joint", "1x4x6 + 11 text tokens", 2), ("self", "None", 1)},
    "LTX": {("self", "2x3x4", 2), ("cross", "2x3x4", 2)},
    # Per block: video to itself, to text and to audio; audio to itself, to text and to video.
    "LTX 2": {
        ("self", "2x3x4", 2),
        ("cross", "2x3x4", 4),
        ("self", "None", 2),
        ("cross", "None", 4),
    },
    "CogVideoX": {("joint", "3x2x3 + 7 text tokens", 2)},
    # Only the five valid words join; the pooler has one query.
    "Mochi": {("joint", "3x2x3 + 5 text tokens", 2), ("self", "None", 1)},
    "Flux 2": {("joint", "1x3x4 + 7 text tokens", 2)},
    "Chroma": {("joint", "1x3x4 + 7 text tokens", 2)},
    "QwenImage": {("joint", "1x3x4 + 7 text tokens", 2)},
    # Self-attention is linear there: no attention function is called.
    "Sana": {("cross", "1x4x6", 2)},
    "Sana Video": {("cross", "3x2x3", 2)},
    # Seven words are padded to 32; the image is 32 tokens.
    "Z-Image": {
        ("joint", "1x4x8 + 32 text tokens", 2),
        ("self", "1x4x8", 1),
        ("self", "None", 1),
    },
    "Lumina 2": {
        ("joint", "1x3x4 + 5 text tokens", 2),
        ("self", "1x3x4", 1),
        ("self", "None", 1),
    },
    # Four words of T5, three of Llama's last layer, three of its current one.
    "HiDream": {("joint", "1x4x4 + 10 text tokens", 2)},
    "Kandinsky 5": {("self", "3x2x3", 2), ("cross", "3x2x3", 2), ("self", "None", 1)},
    "Cosmos": {("self", "3x2x3", 2), ("cross", "3x2x3", 2)},
    "PixArt": {("self", "1x2x3", 2), ("cross", "1x2x3", 2)},
    "CogView 4": {("joint", "1x2x3 + 7 text tokens", 2)},
    # Eight register tokens stand before the words.
    "AuraFlow": {("joint", "1x2x3 + 15 text tokens", 2)},
}
# Where the text of a joint sequence stands: before the image in these, after it in the others.
TEXT_FIRST = {
    "CogVideoX",
    "Flux 2",
    "Chroma",
    "QwenImage",
    "Lumina 2",
    "CogView 4",
    "AuraFlow",
}


class Pipeline:
    """The part of a pipeline that attach() reads."""

    def __init__(self, **components: Any) -> None:
        self.components = components


def _found(report: Any) -> Expected:
    sites: dict[tuple[str, str], set[str]] = {}
    for execution in report.executions:
        sites.setdefault((str(execution.role), str(execution.grid)), set()).add(execution.path)
    return {(role, grid, len(paths)) for (role, grid), paths in sites.items()}


@pytest.mark.parametrize("denoiser", DENOISERS, ids=lambda denoiser: denoiser.family)
def test_a_denoiser_computes_the_same_bits_and_its_sites_are_known(
    denoiser: Denoiser, cpu: PlatformFacts
) -> None:
    model = denoiser.build()
    expected = denoiser.run(model)
    assert expected.isfinite().all()
    assert expected.std() > 0
    attachment = attach(Pipeline(transformer=model), facts=cpu)
    assert torch.equal(denoiser.run(model), expected)
    report = attachment.report()
    assert _found(report) == EXPECTED[denoiser.family]
    texts = {e.grid.text_first for e in report.executions if e.grid and e.grid.text}
    assert texts <= {denoiser.family in TEXT_FIRST}
    assert report.bypasses == ()
    (check,) = attachment.checks.values()
    assert check == f"traced: {report.calls} attention calls of torch, 0 not counted"
    ((_, kernels),) = attachment.kernels
    assert sum(int(word) for word in kernels.split() if word.strip(",").isdigit()) <= report.calls
    # The first pass was traced; the second is as the pipeline's later steps.
    assert torch.equal(denoiser.run(model), expected)
    assert attachment.report().calls == 2 * report.calls
    attachment.detach()
    assert torch.equal(denoiser.run(model), expected)
    assert attachment.report().calls == 2 * report.calls


@pytest.mark.parametrize("vae", VAES, ids=lambda vae: vae.kind)
def test_a_vae_computes_the_same_bits(vae: Vae, cpu: PlatformFacts) -> None:
    model = vae.build()
    expected = vae.run(model)
    assert expected.isfinite().all()
    attachment = attach(Pipeline(vae=model), facts=cpu)
    output = vae.run(model)
    if vae.kind == "AutoencoderKLHunyuanImage":
        # Its [batch, tokens, channels] makes torch take its math kernel; as one head of
        # [batch, 1, tokens, channels], which polyattn passes, a fused one serves.
        torch.testing.assert_close(output, expected)
    else:
        assert torch.equal(output, expected)
    report = attachment.report()
    assert report.calls > 0
    assert report.bypasses == ()
    assert all(check.endswith(" 0 not counted") for check in attachment.checks.values())
    attachment.detach()
    assert torch.equal(vae.run(model), expected)


def test_attention_along_time_is_not_taken_for_a_grid_of_rows(cpu: PlatformFacts) -> None:
    vae = next(vae for vae in VAES if vae.kind == "AutoencoderKLCosmos")
    model = vae.build()
    attachment = attach(Pipeline(vae=model), facts=cpu)
    vae.run(model)
    grids = {(".temp_attentions." in e.path, str(e.grid)) for e in attachment.report().executions}
    assert grids == {(True, "None"), (False, "1x2x3")}
    attachment.detach()


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda encoder: encoder.name)
def test_a_text_encoder_computes_the_same_bits(encoder: Encoder, cpu: PlatformFacts) -> None:
    model = encoder.build()
    expected = encoder.run(model)
    attachment = attach(Pipeline(text_encoder=model), facts=cpu)
    assert torch.equal(encoder.run(model), expected)
    report = attachment.report()
    assert [(row.role, row.sites, row.calls) for row in report.rows] == [("self", 2, 2)]
    assert report.bypasses == ()
    assert attachment.checks == {
        "text_encoder": "traced: 2 attention calls of torch, 0 not counted"
    }
    attachment.detach()
    assert torch.equal(encoder.run(model), expected)


def test_gemma2_keeps_its_capped_scores_and_is_named_as_not_routed(cpu: PlatformFacts) -> None:
    # Routed without its softcap it would be silently wrong (facts/diffusers.md section 2).
    model = GEMMA2.build()
    expected = GEMMA2.run(model)
    attachment = attach(Pipeline(text_encoder=model), facts=cpu)
    assert torch.equal(GEMMA2.run(model), expected)
    why = "text_encoder: Gemma2Model attends by 'eager', not by 'sdpa'"
    assert attachment.report().bypasses == (why,)
    attachment.detach()
    strict = AttentionPreferences(on_substitution="error")
    with pytest.raises(BypassedAttention, match="Gemma2Model attends by 'eager'"):
        attach(Pipeline(text_encoder=model), strict, cpu)


def test_every_row_names_classes_of_diffusers_once() -> None:
    import diffusers

    names = [name for family in FAMILIES for name in family.models]
    assert len(names) == len(set(names))
    assert all(hasattr(diffusers, name) for name in names)


def test_every_row_with_a_grid_is_tested() -> None:
    from tests.small_pipelines import FAMILIES as PIPELINES

    models = {denoiser.kind for denoiser in DENOISERS}
    rows = {family.title for family in FAMILIES if family.grid is not None}
    tested = {family.title for family in FAMILIES if models & set(family.models)}
    assert {pipeline.name for pipeline in PIPELINES} == {"wan", "flux", "sd3", "sdxl"}
    assert rows - tested == {"SD3", "Stable Diffusion"}  # whole pipelines of both are tested


def test_a_class_that_extends_a_known_one_belongs_to_its_family() -> None:
    from diffusers import LTXVideoTransformer3DModel

    class Finetuned(LTXVideoTransformer3DModel):  # type: ignore[misc]
        pass

    denoiser = next(denoiser for denoiser in DENOISERS if denoiser.family == "LTX")
    assert family_of(Finetuned(**denoiser.config)).title == "LTX"
    assert family_of(torch.nn.Linear(1, 1)) is UNKNOWN


def test_items_with_texts_of_different_lengths_have_no_common_grid(cpu: PlatformFacts) -> None:
    # Mochi joins each item's valid words to its video: with two lengths, no one grid is both.
    denoiser = next(denoiser for denoiser in DENOISERS if denoiser.family == "Mochi")
    model = denoiser.build()
    inputs = denoiser.inputs()
    twice = {name: value.repeat(2, *[1] * (value.ndim - 1)) for name, value in inputs.items()}
    twice["encoder_attention_mask"][1, 3:] = False
    with torch.no_grad():
        expected = model(**twice, return_dict=False)[0]
        attachment = attach(Pipeline(transformer=model), facts=cpu)
        assert torch.equal(model(**twice, return_dict=False)[0], expected)
    assert {str(e.grid) for e in attachment.report().executions} == {"None"}
    attachment.detach()


def _compiled(denoiser: Denoiser, how: str, facts: PlatformFacts) -> None:
    torch._dynamo.reset()
    model = denoiser.build()
    expected = denoiser.run(model)
    attachment = attach(Pipeline(transformer=model), facts=facts)
    counter = CompileCounter()
    if how == "whole":
        model.compile(fullgraph=True, backend=counter)
    else:
        model.compile_repeated_blocks(fullgraph=True, backend=counter)
    # The first call that this thread makes is a compiled one.
    assert torch.equal(denoiser.run(model), expected)
    graphs = counter.frame_count
    calls = attachment.report().calls
    assert torch.equal(denoiser.run(model), expected)
    assert counter.frame_count == graphs
    assert attachment.report().calls == 2 * calls
    assert calls >= sum(sites for _, _, sites in EXPECTED[denoiser.family])
    assert how == "regional" or graphs == 1
    attachment.detach()
    torch._dynamo.reset()


def test_a_model_that_is_compiled_before_it_ran_is_counted(cpu: PlatformFacts) -> None:
    _compiled(next(d for d in DENOISERS if d.family == "Sana"), "whole", cpu)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("denoiser", "how"),
    [
        pytest.param(denoiser, how, id=f"{denoiser.family}-{how}")
        for denoiser in DENOISERS
        for family in FAMILIES
        if denoiser.kind in family.models
        for how in family.compiles
    ],
)
def test_each_denoiser_compiles_as_its_row_says(
    denoiser: Denoiser, how: str, cpu: PlatformFacts
) -> None:
    _compiled(denoiser, how, cpu)
