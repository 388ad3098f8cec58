"""The selection rules of design.md "Selection", written down by hand.

The expected values come from the rules, never from running the selector. Every row has an adapter
here, so that the rules for kernels whose adapters are still to come are judged as well.
"""

from __future__ import annotations

import dataclasses

import pytest

from polyattn import capabilities
from polyattn.call import Site
from polyattn.errors import (
    BackendUnavailable,
    InvalidOptions,
    SubstitutionRefused,
    UnknownName,
    UnsupportedCall,
)
from polyattn.facts import LiveResult, PackageFacts, PlatformFacts
from polyattn.preferences import (
    AttentionPreferences,
    parse_backend,
    preferences_from_options,
)
from polyattn.selector import check_preferences, requested_for, select, usable
from polyattn.vocabulary import Fidelity, MaskKind, PackageState, PlatformName, Role, Source
from tests.unit.polyattn.machines import (
    A100,
    B200,
    CPU,
    CROSS,
    ENCODER,
    H100,
    JOINT,
    M2,
    MACHINES,
    MI210,
    MI300X,
    RTX_4090,
    RTX_5090,
    SELF,
    T4,
    VAE,
    call,
    give_every_row_an_adapter,
    machine,
    replace_rows,
    with_package,
    without,
    without_adapter,
)


@pytest.fixture(autouse=True)
def _adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    give_every_row_an_adapter(monkeypatch)


def asked(backend: str | None = None, components: str = "", **more: object) -> AttentionPreferences:
    return preferences_from_options(backend, components, environ={}, **more)  # type: ignore[arg-type]


# 1. Precedence: force, then role, then component, then flag, then auto.

FORCE = parse_backend("sage_attn")
EVERYTHING = asked("fa", "transformer=fa2,transformer.self=fa4")


@pytest.mark.parametrize(
    ("preferences", "forced", "request_", "source"),
    [
        # "1. force ..." stands above "2. explicit".
        (EVERYTHING, FORCE, "sage_attn", Source.FORCE),
        # "2. explicit: role (`transformer.cross=torch_sdpa`) > component > flag".
        (EVERYTHING, None, "fa4", Source.ROLE),
        (asked("fa", "transformer=fa2,transformer.cross=fa4"), None, "fa2", Source.COMPONENT),
        (asked("fa", "text_encoder=torch_sdpa"), None, "fa", Source.FLAG),
        # "3. auto".
        (asked(), None, None, Source.AUTO),
        (asked("auto"), None, None, Source.AUTO),
        (asked(None, "vae=torch_sdpa"), None, None, Source.AUTO),
    ],
)
def test_the_strongest_request_wins(
    preferences: AttentionPreferences,
    forced: object,
    request_: str | None,
    source: Source,
) -> None:
    found, rule = requested_for(call(), preferences, forced)  # type: ignore[arg-type]
    assert (None if found is None else str(found), rule) == (request_, source)
    assert select(call(), H100, preferences, forced).source is source  # type: ignore[arg-type]


@pytest.mark.parametrize("site", [SELF, CROSS, ENCODER, VAE])
def test_a_force_concerns_every_site(site: Site) -> None:
    # "force (...; function: process-wide ...)": no component is exempt.
    selection = select(call(site=site), H100, asked("torch_sdpa"), parse_backend("fa"))
    assert (selection.backend, selection.source) == ("fa", Source.FORCE)


@pytest.mark.parametrize(
    ("component", "concerned"),
    [
        # "the flag concerns the DiT; text encoders and VAEs stay automatic unless named". The
        # names are those of diffusers' pipelines, denoisers first.
        ("transformer", True),
        ("transformer_2", True),  # Wan 2.2
        ("unconditional_transformer", True),
        ("unet", True),
        ("image_unet", True),  # VersatileDiffusion
        ("controlnet", True),
        ("prior", True),  # Kandinsky, StableCascade
        ("prior_prior", True),  # their combined pipelines
        ("decoder", True),  # StableCascade's second UNet
        ("text_encoder", False),
        ("text_encoder_2", False),
        ("prior_text_encoder", False),
        ("prior_image_encoder", False),
        ("image_encoder", False),
        ("vae", False),
        ("vae_decoder", False),
        ("movq", False),
        ("safety_checker", False),
    ],
)
def test_the_flag_concerns_what_denoises(component: str, concerned: bool) -> None:
    site = Site(component, "attn", 0, Role.SELF)
    selection = select(call(site=site), H100, asked("torch_sdpa"))
    assert selection.source is (Source.FLAG if concerned else Source.AUTO)
    # H100 takes FlashAttention by itself, so the flag shows in the result, too.
    assert selection.backend == ("torch_sdpa" if concerned else "fa")


def test_a_named_encoder_follows_its_own_request() -> None:
    preferences = asked("sage_attn", "text_encoder=torch_sdpa")
    encoder = select(call(site=ENCODER), H100, preferences)
    assert (encoder.backend, encoder.source) == ("torch_sdpa", Source.COMPONENT)
    assert select(call(), H100, preferences).backend == "sage_attn"


# 3. auto: the platform's order among exact implementations whose needs are met.

AUTO = {
    # "CUDA: FlashAttention where supported ...: FA3 on 8.x/9.0, cuDNN SDPA on 10.x, torch_sdpa on
    # 12.x"; below 8.0 no FlashAttention row has the architecture.
    "H100": "fa3",
    "A100": "fa3",
    # FA3 has no cubin for 8.9 (sglang 38980); FA2's for 8.0 run there.
    "RTX 4090": "fa2",
    "B200": "sdpa",
    "RTX 5090": "sdpa",
    "T4": "sdpa",
    # "ROCm: FlashAttention where installed, else torch_sdpa".
    "MI300X": "fa2",
    "MI210": "fa2",
    # "MPS and CPU: torch_sdpa".
    "Apple M2": "sdpa",
    "CPU": "sdpa",
}


@pytest.mark.parametrize("name", MACHINES)
def test_auto_takes_what_the_rules_name(name: str) -> None:
    selection = select(call(), MACHINES[name])
    assert (selection.implementation, selection.source) == (AUTO[name], Source.AUTO)
    assert not selection.substitution
    assert selection.reason is None


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float32"},  # no FlashAttention takes it
        {"mask": MaskKind.BOOL},  # no FlashAttention takes a mask other than key padding
        {"mask": MaskKind.ADDITIVE},
        {"head_dim": 512},  # wider than any, as in SDXL's VAE
        {"head_dim": 36},  # not a multiple of 8
        {"value_head_dim": 512},
    ],
    ids=str,
)
def test_auto_falls_to_torch_where_flash_attention_does_not_serve(
    name: str, changes: dict[str, object]
) -> None:
    assert select(call(**changes), MACHINES[name]).implementation == "sdpa"


@pytest.mark.parametrize(
    ("name", "implementation"),
    [
        # Key padding is packed away for kernels with variable lengths: FA3 and FA2 have them.
        ("H100", "fa3"),
        ("A100", "fa3"),
        ("RTX 4090", "fa2"),
        ("MI300X", "fa2"),
        ("B200", "sdpa"),
        ("CPU", "sdpa"),
    ],
)
def test_auto_keeps_flash_attention_under_key_padding(name: str, implementation: str) -> None:
    padded = call(mask=MaskKind.KEY_PADDING)
    assert select(padded, MACHINES[name]).implementation == implementation


@pytest.mark.parametrize("facts", [H100, A100], ids=["H100", "A100"])
def test_auto_takes_the_next_flash_attention_where_the_first_is_missing(
    facts: PlatformFacts,
) -> None:
    second = {"sm_90": "fa4", "sm_80": "fa2"}[facts.devices[0].architecture]
    assert select(call(), without(facts, "sglang-kernel")).implementation == second


def test_auto_skips_an_installed_but_broken_package_and_says_so() -> None:
    broken = PackageFacts(
        "sglang-kernel", PackageState.BROKEN, "0.4.10", "ImportError: libcuda.so.1"
    )
    selection = select(call(), with_package(H100, broken))
    assert selection.implementation == "fa4"
    reasons = {r.implementation: r.reason for r in selection.rejections}
    assert reasons["fa3"] == (
        "needs the package sglang-kernel, which is installed but broken: ImportError: libcuda.so.1"
    )


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("head_dim", [32, 64, 128, 256])
@pytest.mark.parametrize("role", Role)
def test_auto_is_never_lossy_or_sparse(name: str, dtype: str, head_dim: int, role: Role) -> None:
    # "Auto never takes a lossy or sparse one."
    site = Site("transformer", "attn", 0, role)
    selection = select(call(dtype=dtype, head_dim=head_dim, site=site), MACHINES[name])
    assert capabilities.row(selection.implementation).fidelity is Fidelity.EXACT


def test_a_mixed_host_takes_no_kernel_that_one_of_its_devices_lacks() -> None:
    mixed = machine(PlatformName.CUDA, "sm_90", "sm_120")
    assert select(call(), mixed).implementation == "sdpa"
    # "selection on a mixed host is per device" (facts.for_device).
    assert select(call(), mixed.for_device(0)).implementation == "fa3"
    assert select(call(), mixed.for_device(1)).implementation == "sdpa"


def test_unknown_newer_devices_get_torch() -> None:
    # Rows hold allow-lists (facts/reports.md 10): nothing is assumed of a newer architecture.
    assert select(call(), machine(PlatformName.CUDA, "sm_130")).implementation == "sdpa"
    assert select(call(), machine(PlatformName.CUDA)).implementation == "sdpa"


# Every decision explains itself.


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("backend", [None, "fa", "torch_sdpa", "fa2"])
def test_every_other_implementation_is_rejected_once_with_a_reason(
    name: str, backend: str | None
) -> None:
    selection = select(call(), MACHINES[name], asked(backend))
    rejected = [rejection.implementation for rejection in selection.rejections]
    assert sorted([*rejected, selection.implementation]) == sorted(
        row.name for row in capabilities.rows()
    )
    assert all(rejection.reason.strip() for rejection in selection.rejections)
    assert all("None" not in rejection.reason for rejection in selection.rejections)


def test_lossy_and_sparse_rows_that_could_serve_say_that_they_wait_to_be_asked() -> None:
    reasons = {r.implementation: r.reason for r in select(call(), RTX_5090).rejections}
    assert reasons["sage1"] == "could serve but is lossy: never chosen unless requested"
    assert reasons["sta"] == "could serve but is sparse: never chosen unless requested"
    assert reasons["fa4"].startswith("could serve; sdpa comes first in the automatic order")


# An explicit request that can be served is served.


@pytest.mark.parametrize(
    ("facts", "backend", "implementation"),
    [
        (H100, "torch_sdpa", "sdpa"),
        (H100, "sdpa", "sdpa"),
        # "FA3 on 8.x/9.0" first: the backend's name alone leaves the order to the platform.
        (H100, "fa", "fa3"),
        (A100, "fa", "fa3"),
        (RTX_4090, "FA", "fa2"),
        (MI300X, "flash_attn", "fa2"),
        (B200, "fa", "fa4"),
        (RTX_5090, "fa", "fa4"),
        # "`fa3`, `fa4` parse to `fa` with that implementation requested".
        (H100, "fa4", "fa4"),
        (H100, "fa2", "fa2"),
        (H100, "sage_attn", "sage1"),
        (RTX_5090, "sage_attn_3", "sage3"),
        (RTX_5090, "sage3", "sage3"),
        (MI300X, "aiter", "aiter"),
        (CPU, "sliding_tile_attn", "sta"),
        (M2, "vmoba_attn", "vmoba"),
        (H100, "video_sparse_attn", "vsa"),
    ],
)
def test_a_request_that_can_be_served_is_served(
    facts: PlatformFacts, backend: str, implementation: str
) -> None:
    selection = select(call(), facts, asked(backend, on_substitution="error"))
    assert (selection.implementation, selection.source) == (implementation, Source.FLAG)
    assert not selection.substitution
    assert selection.reason is None
    check_preferences(asked(backend, on_substitution="error"), facts)


# "`fa`: torch_sdpa ..., recorded as a substitution. The same holds for `fa3`/`fa4` served by
# another implementation."


@pytest.mark.parametrize("name", ["T4", "Apple M2", "CPU"])
def test_fa_becomes_torch_sdpa_where_it_cannot_run(name: str) -> None:
    check_preferences(asked("fa"), MACHINES[name])
    selection = select(call(), MACHINES[name], asked("fa"))
    assert (selection.implementation, selection.source) == ("sdpa", Source.FLAG)
    assert str(selection.requested) == "fa"
    assert selection.substitution
    # The reason speaks of every FlashAttention, since any would have done.
    assert selection.reason is not None
    assert all(name in selection.reason for name in ("fa2 ", "fa3 ", "fa4 "))


@pytest.mark.parametrize(
    ("facts", "backend", "implementation"),
    [
        (without(H100, "sglang-kernel"), "fa3", "fa4"),
        (B200, "fa3", "fa4"),
        (MI300X, "fa4", "fa2"),
        (MI300X, "fa3", "fa2"),
        (CPU, "fa3", "sdpa"),
    ],
)
def test_another_implementation_serves_the_one_that_was_named(
    facts: PlatformFacts, backend: str, implementation: str
) -> None:
    check_preferences(asked(backend), facts)
    selection = select(call(), facts, asked(backend))
    assert selection.implementation == implementation
    assert selection.substitution
    # Only the named one was wanted: only its reason is the reason.
    assert selection.reason is not None
    assert selection.reason.startswith(f"{backend} needs ") or selection.reason.startswith(
        f"{backend} has kernels for "
    )


def test_a_masked_call_under_fa_is_a_substitution() -> None:
    # facts/reports.md 17: a mask is never ignored, and what serves it is not called FlashAttention.
    selection = select(call(mask=MaskKind.BOOL), H100, asked("fa"))
    assert (selection.backend, selection.implementation) == ("torch_sdpa", "sdpa")
    assert selection.substitution
    assert "takes no bool mask" in (selection.reason or "")


# "on MPS any dense request becomes torch_sdpa with the same warning".


@pytest.mark.parametrize("backend", ["fa", "fa3", "sage_attn", "sage_attn_3", "aiter"])
def test_mps_serves_every_dense_request_by_torch(backend: str) -> None:
    check_preferences(asked(backend), M2)
    selection = select(call(), M2, asked(backend))
    assert selection.implementation == "sdpa"
    assert selection.substitution
    assert "this machine is mps" in (selection.reason or "")


# "elsewhere `sage_attn`, `sage_attn_3`, `aiter` and the sparse three: ... an error before the model
# loads: cause, evidence, remedy".


@pytest.mark.parametrize(
    ("facts", "backend", "evidence"),
    [
        (CPU, "sage_attn", "needs the platform cuda; this machine is cpu"),
        (MI300X, "sage_attn", "needs the platform cuda; this machine is rocm"),
        (T4, "sage_attn", "found sm_75"),
        (H100, "sage_attn_3", "found sm_90"),
        (RTX_4090, "sage_attn_3", "found sm_89"),
        (without(H100, "sageattention"), "sage_attn", "sageattention, which is not installed"),
        (H100, "aiter", "needs the platform rocm; this machine is cuda"),
        (MI210, "aiter", "found gfx90a"),
        (CPU, "aiter", "needs the platform rocm"),
    ],
)
def test_what_must_not_be_substituted_is_refused_before_loading(
    facts: PlatformFacts, backend: str, evidence: str
) -> None:
    with pytest.raises(BackendUnavailable) as refused:
        check_preferences(asked(backend), facts)
    message = str(refused.value)
    assert message.startswith(f"{backend} cannot be served on this machine: ")  # the cause
    assert evidence in message
    assert "would be chosen automatically" in message  # the remedy
    assert "ditport backends" in message
    # The same holds for a force, which no check before loading has seen.
    with pytest.raises(BackendUnavailable):
        select(call(), facts, forced=parse_backend(backend))


@pytest.fixture
def _only_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version in which torch's is the only kernel that can be called."""
    replace_rows(
        monkeypatch,
        tuple(row if row.name == "sdpa" else without_adapter(row) for row in capabilities.BUILTIN),
    )


@pytest.mark.parametrize(
    "backend", ["sliding_tile_attn", "video_sparse_attn", "vmoba_attn", "sage_attn"]
)
@pytest.mark.usefixtures("_only_torch")
def test_a_backend_without_an_adapter_is_refused_and_says_so(backend: str) -> None:
    for asked_so in (asked(backend), asked(None, f"transformer.self={backend}")):
        with pytest.raises(BackendUnavailable, match="has no adapter in this version"):
            check_preferences(asked_so, H100)


@pytest.mark.usefixtures("_only_torch")
def test_sparse_requests_are_not_substituted_on_mps() -> None:
    # Only *dense* requests become torch_sdpa there.
    check_preferences(asked("sage_attn"), M2)
    with pytest.raises(BackendUnavailable):
        check_preferences(asked("sliding_tile_attn"), M2)


def test_foreign_aiter_is_named_in_the_refusal() -> None:
    foreign = PackageFacts("amd-aiter", PackageState.FOREIGN, None, "PyPI's aiter is asyncio")
    with pytest.raises(BackendUnavailable, match="foreign: PyPI's aiter is asyncio"):
        check_preferences(asked("aiter"), with_package(MI300X, foreign))


# "a single site that the backend cannot serve (...) gets the automatic exact choice".


@pytest.mark.parametrize(
    ("backend", "changes", "facts", "implementation", "why"),
    [
        ("sliding_tile_attn", {"site": CROSS, "kv_len": 77}, H100, "fa3", "cross attention"),
        ("video_sparse_attn", {"site": CROSS, "kv_len": 77}, CPU, "sdpa", "cross attention"),
        ("vmoba_attn", {"grid": None}, H100, "fa3", "token grid"),
        ("sage_attn", {"head_dim": 80}, H100, "fa3", "head_dim"),
        ("sage_attn", {"mask": MaskKind.BOOL}, H100, "sdpa", "bool mask"),
        ("sage_attn", {"dtype": "float32"}, H100, "sdpa", "not float32"),
        ("sage_attn_3", {"kv_heads": 4}, RTX_5090, "sdpa", "as many key heads"),
        ("sage_attn_3", {"softmax_scale": 0.3}, RTX_5090, "sdpa", "softmax_scale"),
        ("aiter", {"kv_heads": 4}, MI300X, "fa2", "as many key heads"),
    ],
)
def test_a_site_that_the_backend_cannot_serve_gets_the_automatic_choice(
    backend: str,
    changes: dict[str, object],
    facts: PlatformFacts,
    implementation: str,
    why: str,
) -> None:
    check_preferences(asked(backend), facts)  # the backend as such can run
    selection = select(call(**changes), facts, asked(backend))
    assert (selection.implementation, selection.source) == (implementation, Source.FLAG)
    assert selection.substitution
    assert why in (selection.reason or "")
    with pytest.raises(SubstitutionRefused, match=f"{backend} was requested at transformer"):
        select(call(**changes), facts, asked(backend, on_substitution="error"))


def test_joint_attention_is_served_by_sparse_backends() -> None:
    assert select(call(site=JOINT), H100, asked("vmoba_attn")).implementation == "vmoba"


# "`--on-substitution error` turns every substitution ... into an error".


@pytest.mark.parametrize(("facts", "backend"), [(CPU, "fa"), (M2, "sage_attn"), (T4, "fa3")])
def test_no_substitution_under_error(facts: PlatformFacts, backend: str) -> None:
    strict = asked(backend, on_substitution="error")
    with pytest.raises(SubstitutionRefused, match="on-substitution"):
        check_preferences(strict, facts)
    with pytest.raises(SubstitutionRefused, match=f"{backend} was requested"):
        select(call(), facts, strict)


def test_automatic_choice_is_no_substitution_under_error() -> None:
    strict = asked(on_substitution="error")
    assert select(call(mask=MaskKind.BOOL), H100, strict).implementation == "sdpa"


# The machine's rules: allow-lists, platforms, packages, live results.

SERVED = {
    # What each row's allow-list holds (facts/packaging.md sections 1 and 4), by machine.
    "H100": {"fa2", "fa3", "fa4", "sage1"},
    "A100": {"fa2", "fa3", "fa4", "sage1"},
    "RTX 4090": {"fa2", "fa4", "sage1"},
    "B200": {"fa2", "fa4", "sage1", "sage3"},
    "RTX 5090": {"fa2", "fa4", "sage1", "sage3"},
    "T4": set(),
    "MI300X": {"fa2", "aiter"},
    "MI210": {"fa2"},
    "Apple M2": {"sdpa_chunked"},
    "CPU": set(),
}
ANYWHERE = {"sdpa", "sta", "vsa", "vmoba"}
TRITON = {"sta_triton", "vsa_triton", "vmoba_triton"}  # compiled ahead of time for these
COMPILED_FOR = {"H100", "A100", "RTX 4090", "B200", "RTX 5090", "MI300X", "MI210"}


@pytest.mark.parametrize("name", MACHINES)
def test_each_machine_runs_what_its_architecture_has_kernels_for(name: str) -> None:
    runs = {row for row, reason in usable(MACHINES[name]).items() if reason is None}
    assert runs == SERVED[name] | ANYWHERE | (TRITON if name in COMPILED_FOR else set())


def test_a_machine_without_torch_runs_nothing() -> None:
    facts = with_package(H100, PackageFacts("torch", PackageState.ABSENT))
    facts = dataclasses.replace(facts, torch=None)
    assert None not in usable(facts).values()
    assert usable(facts)["sdpa"] == "needs the package torch, which is not installed"
    with pytest.raises(UnsupportedCall, match="torch, which is not installed"):
        select(call(), facts)


def test_a_kernel_that_failed_the_live_probe_is_not_chosen() -> None:
    failed = LiveResult("fa3", 0, None, "the process was killed by SIGSEGV")
    facts = dataclasses.replace(H100, level=H100.level, live=(failed, LiveResult("fa4", 0, 0.001)))
    selection = select(call(), facts)
    assert selection.implementation == "fa4"
    reasons = {r.implementation: r.reason for r in selection.rejections}
    assert reasons["fa3"] == (
        "failed when it was tried on device 0: the process was killed by SIGSEGV"
    )


def test_a_live_failure_on_one_device_does_not_concern_another() -> None:
    two = machine(PlatformName.CUDA, "sm_90", "sm_90")
    facts = dataclasses.replace(two, live=(LiveResult("fa3", 1, None, "wrong"),))
    assert select(call(), facts.for_device(0)).implementation == "fa3"
    assert select(call(), facts.for_device(1)).implementation == "fa4"


def test_nothing_exact_serves() -> None:
    # Log-sum-exp is asked for on a CPU, where only torch runs, which returns none.
    with pytest.raises(UnsupportedCall, match="sdpa returns no log-sum-exp"):
        select(call(lse=True), CPU)


# Before any model loads.


def test_an_unknown_component_is_refused_with_the_nearest_name() -> None:
    components = ("transformer", "text_encoder", "vae")
    with pytest.raises(UnknownName, match=r"Did you mean 'text_encoder'\?"):
        check_preferences(asked(None, "text_encodr=torch_sdpa"), CPU, components)
    check_preferences(asked(None, "text_encoder=torch_sdpa"), CPU, components)


def test_options_of_the_flag_must_belong_to_what_is_requested() -> None:
    good = asked("video_sparse_attn", attention_backend_config="sparsity=0.5")
    check_preferences(good, CPU)
    with pytest.raises(UnknownName, match=r"'sparsty'.*Did you mean 'sparsity'\?"):
        check_preferences(asked("video_sparse_attn", attention_backend_config="sparsty=1"), CPU)
    with pytest.raises(InvalidOptions, match="no backend is requested"):
        check_preferences(asked(attention_backend_config="sparsity=1"), CPU)


def test_options_of_the_environment_may_be_meant_for_another_run() -> None:
    environ = {"DITPORT_ATTENTION_CONFIG": "sparsity=0.5"}
    check_preferences(preferences_from_options("torch_sdpa", environ=environ), CPU)
