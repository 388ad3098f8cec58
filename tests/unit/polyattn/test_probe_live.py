"""The live probe runs real kernels in processes of their own, and a crash is a result."""

from __future__ import annotations

import dataclasses
import re
import sys

import pytest

from polyattn import capabilities
from polyattn.capabilities import Implementation, Needs
from polyattn.facts import LiveResult, PlatformFacts
from polyattn.probe import Host, gather
from polyattn.probe.live import calls, measure, with_live_results
from polyattn.vocabulary import MaskKind, PlatformName, ProbeLevel
from tests.unit.polyattn.machines import CPU, H100, replace_rows

# A machine of one CPU, on which torch is taken for granted.
HERE = dataclasses.replace(CPU, packages=())

KERNELS = """
def right(query, key, value, mask=None, causal=False, softmax_scale=None):
    from polyattn.backends.torch_sdpa import attend
    return attend(query, key, value, mask, causal, softmax_scale)

def plain_only(query, key, value, mask=None, causal=False, softmax_scale=None):
    assert mask is None and not causal and query.shape[2] == key.shape[2]
    return right(query, key, value, softmax_scale=softmax_scale)

def deaf_to_masks(query, key, value, mask=None, causal=False, softmax_scale=None):
    return right(query, key, value, None, causal, softmax_scale)

def deaf_to_causal(query, key, value, mask=None, causal=False, softmax_scale=None):
    return right(query, key, value, mask, False, softmax_scale)

def raises(*args, **words):
    raise RuntimeError("no kernel image is available for execution on the device")

def crashes(*args, **words):
    import ctypes
    ctypes.string_at(0)

def misshapen(query, key, value, **words):
    return right(query, key, value, **words).transpose(1, 2)

def infinite(query, key, value, **words):
    return right(query, key, value, **words) * float("inf")

def odd_sizes(query, key, value, **words):
    assert query.shape[3] == 48 and str(query.dtype) == "torch.bfloat16"
    return right(query, key, value, **words)
"""

# A distribution that registers kernels, as others will: the child finds them by the entry point,
# which no patch of this process reaches.
ROWS = """
import dataclasses
from polyattn.capabilities import Implementation, Needs
from polyattn.vocabulary import Fidelity, PlatformName

def kernel(name, **needs):
    return Implementation(name, name, name, Needs(**needs), adapter=f"fake_attention:{name}")

ROWS = (
    kernel("right"),
    kernel("raises"),
    kernel("crashes"),
    kernel("elsewhere", platforms=(PlatformName.CUDA,)),
    dataclasses.replace(kernel("sparse"), fidelity=Fidelity.SPARSE),
)
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the kernels."""
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "fake_attention.py").write_text(KERNELS)
    return str(folder)


@pytest.fixture(scope="module")
def registration(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the rows and the metadata that registers them."""
    folder = tmp_path_factory.mktemp("registration")
    (folder / "fake_rows.py").write_text(ROWS)
    metadata = folder / "fake_attention-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-attention\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[polyattn.implementations]\nfake = fake_rows:ROWS\n"
    )
    return str(folder)


# In processes of their own


@pytest.fixture(scope="module")
def results(kernels: str, registration: str) -> PlatformFacts:
    """The live facts of a machine with those kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(registration)
        # `rows` is cached: one without a cache sees the new entry point, the old one comes back.
        patch.setattr(capabilities, "rows", capabilities.rows.__wrapped__)
        return with_live_results(HERE, Host(python_path=(kernels, registration, *sys.path)))


def result(facts: PlatformFacts, name: str) -> LiveResult:
    return next(one for one in facts.live if one.implementation == name)


@pytest.mark.parametrize("name", ["right", "sdpa"])
def test_right_kernels_are_measured(results: PlatformFacts, name: str) -> None:
    one = result(results, name)
    assert one.failure is None
    assert one.max_error is not None
    assert 0 < one.max_error < 0.1
    assert one.device == 0


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("raises", "RuntimeError: no kernel image is available for execution on the device"),
        ("crashes", "the process was killed by SIGSEGV"),
    ],
)
def test_wrong_kernels_say_how(results: PlatformFacts, name: str, failure: str) -> None:
    assert result(results, name).failure == failure


def test_what_cannot_run_here_is_not_run(results: PlatformFacts) -> None:
    names = {one.implementation for one in results.live}
    assert "elsewhere" not in names
    assert "fa3" not in names
    assert results.level is ProbeLevel.LIVE


def test_sparse_kernels_have_no_dense_oracle(results: PlatformFacts) -> None:
    assert "sparse" not in {one.implementation for one in results.live}
    assert "sparse was not run: a sparse result has no dense oracle" in results.notes


def test_live_facts_survive_json(results: PlatformFacts) -> None:
    assert PlatformFacts.from_json(results.to_json()) == results


# What a measurement makes of a kernel, in this process


def measured(
    monkeypatch: pytest.MonkeyPatch, kernels: str, name: str, **needs: object
) -> tuple[float | None, str | None]:
    monkeypatch.syspath_prepend(kernels)
    kernel = dataclasses.replace(row(**needs), name=name, adapter=f"fake_attention:{name}")
    replace_rows(monkeypatch, (kernel,))
    return measure(name, 0, HERE)


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("right", {}),
        ("plain_only", {"masks": (MaskKind.NONE,), "causal": False, "grouped_heads": False}),
        ("odd_sizes", {"head_dims": (48,), "dtypes": ("bfloat16",)}),
        # Its mistakes lie where it does not claim to serve.
        ("deaf_to_masks", {"masks": (MaskKind.NONE,)}),
        ("deaf_to_causal", {"causal": False}),
    ],
)
def test_a_kernel_is_judged_by_what_it_claims(
    monkeypatch: pytest.MonkeyPatch, kernels: str, name: str, needs: dict[str, object]
) -> None:
    error, failure = measured(monkeypatch, kernels, name, **needs)
    assert failure is None
    assert error is not None
    assert 0 < error < 0.1


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("deaf_to_masks", "wrong result: the error is .* allows .*mask=<MaskKind"),
        ("deaf_to_causal", "wrong result: the error is .* allows .*causal=True"),
        ("infinite", "wrong result: the error is inf times"),
    ],
)
def test_a_wrong_result_names_the_call(
    monkeypatch: pytest.MonkeyPatch, kernels: str, name: str, failure: str
) -> None:
    _, said = measured(monkeypatch, kernels, name)
    assert re.match(failure, said or "")


def test_what_a_kernel_raises_is_raised(monkeypatch: pytest.MonkeyPatch, kernels: str) -> None:
    # The child turns it into the failure.
    with pytest.raises(ValueError, match="output has shape"):
        measured(monkeypatch, kernels, "misshapen")
    with pytest.raises(AttributeError, match="not_there"):
        measured(monkeypatch, kernels, "not_there")


def test_needs_that_no_small_call_meets_are_said(
    monkeypatch: pytest.MonkeyPatch, kernels: str
) -> None:
    found = measured(monkeypatch, kernels, "right", head_dims=(64,), head_dim_multiple=7)
    assert found == (None, "no small call meets its needs")


# Which calls are tried


def row(**needs: object) -> Implementation:
    return Implementation("x", "x", "X", Needs(**needs), adapter="x:y")  # type: ignore[arg-type]


def test_a_kernel_is_tried_on_everything_that_it_says_it_serves() -> None:
    tried = calls(row(), HERE)
    assert {call.mask for call in tried} == set(MaskKind)
    assert {call.causal for call in tried} == {False, True}
    assert {call.kv_heads for call in tried} == {4, 2}
    assert {call.dtype for call in tried} == {"float32", "bfloat16"}
    assert any(call.query_len != call.kv_len for call in tried)
    assert any(call.softmax_scale is not None for call in tried)


def test_a_kernel_is_tried_on_nothing_else() -> None:
    narrow = row(
        dtypes=("float16",),
        head_dims=(96,),
        masks=(MaskKind.NONE,),
        causal=False,
        grouped_heads=False,
        custom_scale=False,
    )
    tried = calls(narrow, HERE)
    assert {(call.dtype, call.head_dim, call.mask) for call in tried} == {
        ("float16", 96, MaskKind.NONE)
    }
    assert not any(call.causal or call.softmax_scale for call in tried)
    assert calls(row(platforms=(PlatformName.CUDA,)), HERE) == ()
    assert calls(row(platforms=(PlatformName.CUDA,)), H100, device=0)


def test_this_machine_live() -> None:
    facts = gather(ProbeLevel.LIVE)
    assert facts.level is ProbeLevel.LIVE
    one = result(facts, "sdpa")
    assert one.failure is None, one.failure
