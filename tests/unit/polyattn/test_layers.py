"""LocalAttention: right results, exact counts, forces that neither leak nor stick."""

from __future__ import annotations

import logging
import threading

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from polyattn.call import Site
from polyattn.errors import BackendUnavailable, SubstitutionRefused, UnsupportedCall
from polyattn.executions import executions, snapshot
from polyattn.facts import DeviceFacts, PlatformFacts
from polyattn.forcing import global_force_attn_backend, global_force_attn_backend_context_manager
from polyattn.layers import Context, GridState, LocalAttention, facts_of_device
from polyattn.preferences import AttentionPreferences, Request
from polyattn.vocabulary import MaskKind, PlatformName, Role, Source

SELF = Site("transformer", "blocks.0.attn1", 0, Role.SELF)


def tensors(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(*shape, generator=generator).to(dtype) for _ in range(3))


def reference(query, key, value, **kwargs):  # type: ignore[no-untyped-def]
    heads_first = (t.transpose(1, 2) for t in (query, key, value))
    return scaled_dot_product_attention(*heads_first, **kwargs).transpose(1, 2)


def test_is_torchs_own_result_bit_for_bit(cpu: PlatformFacts) -> None:
    query, key, value = tensors(2, 9, 3, 16)
    attention = LocalAttention(Context(cpu), SELF)
    assert torch.equal(attention(query, key, value), reference(query, key, value))
    assert torch.equal(
        attention(query, key, value, causal=True, softmax_scale=0.3),
        reference(query, key, value, is_causal=True, scale=0.3),
    )


def test_counts_every_call_at_its_site(cpu: PlatformFacts) -> None:
    context = Context(cpu)
    attention = LocalAttention(context, SELF)
    short, long = tensors(1, 4, 2, 8), tensors(1, 6, 2, 8)
    for _ in range(3):
        attention(*short)
    before = snapshot(context.tallies)
    attention(*short)
    attention(*long)
    assert sum(e.calls for e in executions(context.tallies)) == 5
    since = executions(context.tallies, before)
    assert [(e.path, e.calls, e.implementation) for e in since] == [
        ("blocks.0.attn1", 1, "sdpa"),
        ("blocks.0.attn1", 1, "sdpa"),
    ]


def test_a_raising_kernel_is_counted_because_it_ran(
    cpu: PlatformFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> torch.Tensor:
        raise RuntimeError("kernel failed")

    monkeypatch.setattr("polyattn.layers.adapter", lambda _: broken)
    context = Context(cpu)
    with pytest.raises(RuntimeError, match="kernel failed"):
        LocalAttention(context, SELF)(*tensors(1, 4, 2, 8))
    assert [tally.calls for tally in context.tallies] == [1]


def test_all_true_mask_is_dropped_once_and_a_change_in_place_is_seen(cpu: PlatformFacts) -> None:
    query, key, value = tensors(1, 4, 2, 8)
    context = Context(cpu)
    attention = LocalAttention(context, SELF)
    mask = torch.ones(1, 1, 1, 4, dtype=torch.bool)
    attention(query, key, value, mask)
    attention(query, key, value, mask)
    mask[..., 2:] = False
    masked = attention(query, key, value, mask)
    assert [(t.call.mask, t.calls) for t in context.tallies] == [
        (MaskKind.NONE, 2),
        (MaskKind.KEY_PADDING, 1),
    ]
    assert torch.equal(masked, reference(query, key, value, attn_mask=mask))


def test_mask_is_read_once_per_tensor(cpu: PlatformFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    real = torch.Tensor.all
    monkeypatch.setattr(torch.Tensor, "all", lambda self: reads.append(1) or real(self))
    attention = LocalAttention(Context(cpu), SELF)
    mask = torch.ones(4, 4, dtype=torch.bool)
    for _ in range(5):
        attention(*tensors(1, 4, 2, 8), mask=mask)
    assert len(reads) == 1


def test_a_new_mask_at_a_freed_address_is_read_again(cpu: PlatformFacts) -> None:
    context = Context(cpu)
    attention = LocalAttention(context, SELF)
    for length in range(50):  # CPython reuses the address of a freed tensor soon
        mask = torch.ones(1, 1, 1, 4, dtype=torch.bool)
        mask[..., 3] = length % 2 == 0
        attention(*tensors(1, 4, 2, 8), mask=mask)
        del mask
    assert {t.call.mask: t.calls for t in context.tallies} == {
        MaskKind.NONE: 25,
        MaskKind.KEY_PADDING: 25,
    }


def test_grouped_heads_must_divide(cpu: PlatformFacts) -> None:
    query = torch.randn(1, 4, 6, 8)
    narrow = torch.randn(1, 4, 4, 8)
    with pytest.raises(UnsupportedCall, match="6 query heads and 4 key heads"):
        LocalAttention(Context(cpu), SELF)(query, narrow, narrow)


def test_flag_for_an_absent_flash_attention_is_substituted_with_one_warning(
    cpu: PlatformFacts, caplog: pytest.LogCaptureFixture
) -> None:
    context = Context(cpu, AttentionPreferences(backend=Request("fa")))
    sites = [Site("transformer", f"blocks.{n}.attn1", n, Role.SELF) for n in range(3)]
    with caplog.at_level(logging.WARNING, "polyattn"):
        for site in sites:
            LocalAttention(context, site)(*tensors(1, 4, 2, 8))
    assert len(caplog.records) == 1
    assert "fa was requested, sdpa runs instead" in caplog.text
    (first, *_) = executions(context.tallies)
    assert (first.requested, first.backend) == ("fa", "torch_sdpa")
    assert first.reason is not None
    assert "cpu" in first.reason


def test_substitution_can_be_an_error(cpu: PlatformFacts) -> None:
    preferences = AttentionPreferences(backend=Request("fa"), on_substitution="error")
    with pytest.raises(SubstitutionRefused, match=r"blocks\.0\.attn1"):
        LocalAttention(Context(cpu, preferences), SELF)(*tensors(1, 4, 2, 8))


def test_force_takes_effect_on_a_shape_that_was_seen_and_ends_with_its_scope(
    cpu: PlatformFacts,
) -> None:
    context = Context(cpu)
    attention = LocalAttention(context, SELF)
    call = tensors(1, 4, 2, 8)
    attention(*call)
    with global_force_attn_backend_context_manager("fa"):
        attention(*call)
        with global_force_attn_backend_context_manager("torch_sdpa"):
            attention(*call)
        attention(*call)
    attention(*call)
    seen = [
        (str(e.source), e.requested, e.calls, e.reason is not None)
        for e in executions(context.tallies)
    ]
    assert seen == [
        (Source.AUTO, None, 2, False),
        (Source.FORCE, "fa", 2, True),
        (Source.FORCE, "torch_sdpa", 1, False),
    ]


def test_force_on_the_process_reaches_other_threads_and_the_context_one_does_not(
    cpu: PlatformFacts,
) -> None:
    context = Context(cpu)
    attention = LocalAttention(context, SELF)

    def call_in_thread() -> None:
        thread = threading.Thread(target=attention, args=tensors(1, 4, 2, 8))
        thread.start()
        thread.join()

    with global_force_attn_backend_context_manager("torch_sdpa"):
        call_in_thread()
    global_force_attn_backend("torch_sdpa")
    try:
        call_in_thread()
    finally:
        global_force_attn_backend(None)
    call_in_thread()
    assert [(e.source, e.calls) for e in executions(context.tallies)] == [("auto", 2), ("force", 1)]


def test_forcing_what_cannot_run_is_an_error_not_a_fallback(cpu: PlatformFacts) -> None:
    attention = LocalAttention(Context(cpu), SELF)
    with global_force_attn_backend_context_manager("sage_attn"), pytest.raises(BackendUnavailable):
        attention(*tensors(1, 4, 2, 8))
    attention(*tensors(1, 4, 2, 8))


def test_four_threads_are_counted_exactly(cpu: PlatformFacts) -> None:
    context = Context(cpu)
    attention = LocalAttention(context, SELF)
    call = tensors(1, 2, 1, 4)
    calls, threads = 2000, 4

    def work() -> None:
        for _ in range(calls):
            attention(*call)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sum(e.calls for e in executions(context.tallies)) == calls * threads
    assert len(context.tallies) == 1


def test_two_contexts_count_apart(cpu: PlatformFacts) -> None:
    first, second = Context(cpu), Context(cpu)
    LocalAttention(first, SELF)(*tensors(1, 4, 2, 8))
    assert [len(context.tallies) for context in (first, second)] == [1, 0]


def test_a_tensor_on_the_cpu_of_a_gpu_machine_is_the_cpus() -> None:
    h100 = DeviceFacts(0, "NVIDIA H100", "sm_90")
    facts = PlatformFacts(PlatformName.CUDA, "Linux", "x86_64", "3.12", devices=(h100,))
    offloaded = facts_of_device(facts, torch.device("cpu"))
    assert (offloaded.platform, offloaded.devices) == (PlatformName.CPU, ())
    assert facts_of_device(facts, torch.device("cuda", 0)) is facts


def test_a_mixed_host_is_judged_by_the_tensors_device() -> None:
    devices = (DeviceFacts(0, "RTX 3090", "sm_86"), DeviceFacts(1, "RTX 5090", "sm_120"))
    facts = PlatformFacts(PlatformName.CUDA, "Linux", "x86_64", "3.12", devices=devices)
    assert facts_of_device(facts, torch.device("cuda", 1)).devices == (devices[1],)


@pytest.mark.parametrize(
    ("key", "pyramid", "length", "expected"),
    [
        ((3, 4, 6, 0, 0), False, 72, "3x4x6"),
        ((1, 8, 12, 9, 1), False, 105, "1x8x12 + 9 text tokens"),
        ((1, 8, 12, 9, 1), False, 96, "1x8x12"),
        ((1, 16, 24, 0, 0), True, 96, "1x8x12"),
        ((1, 15, 25, 0, 0), True, 8 * 13, "1x8x13"),
        ((5, 16, 24, 0, 0), True, 384, "1x16x24"),
        ((3, 4, 6, 0, 0), False, 71, "None"),
        ((1, 16, 24, 0, 0), False, 96, "None"),
        ((), False, 96, "None"),
    ],
)
def test_grid_is_the_one_that_the_sequence_fits(
    key: tuple[int, ...], pyramid: bool, length: int, expected: str
) -> None:
    assert str(GridState(pyramid).grid(key, length)) == expected
