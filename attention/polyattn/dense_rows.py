"""The rows of dense attention: every key counts for every query, unless a mask says otherwise.

Sources: facts/packaging.md section 1 (architectures read from the wheels), section 2 hazards;
facts/sglang-diffusion.md section 1.6; the packages' own code where a rule says so. Nothing here
but torch's rows has been run by us: each row's evidence says what its claims rest on.
"""

from __future__ import annotations

from typing import Final

from polyattn import rules
from polyattn.implementation import HALF, KEYS_ONLY, UNMASKED, Implementation, Needs
from polyattn.vocabulary import Backend, Fidelity, PlatformName

_CUDA: Final = (PlatformName.CUDA,)
_GPU: Final = (PlatformName.CUDA, PlatformName.ROCM)
_AMPERE_AND_ADA: Final = ("sm_80", "sm_86", "sm_87", "sm_89")
_DATACENTER_BLACKWELL: Final = ("sm_100", "sm_103")
_CONSUMER_BLACKWELL: Final = ("sm_120", "sm_121")
_CDNA: Final = ("gfx90a", "gfx942", "gfx950")

DENSE: Final[tuple[Implementation, ...]] = (
    Implementation(
        name="fa4",
        backend=Backend.FA,
        title="FlashAttention 4 (flash_attn.cute)",
        adapter="polyattn.backends.fa4:attend",
        needs=Needs(
            platforms=_CUDA,
            package="flash-attn-4",
            architectures=(
                *_AMPERE_AND_ADA,
                "sm_90",
                *_DATACENTER_BLACKWELL,
                *_CONSUMER_BLACKWELL,
            ),
            dtypes=HALF,
            max_head_dim=128,
            head_dim_multiple=8,
            masks=UNMASKED,
            lse=False,
            rules=(rules.causal_lengths, rules.same_value_dim),
        ),
    ),
    Implementation(
        name="fa3",
        backend=Backend.FA,
        title="FlashAttention 3 (sgl_kernel)",
        adapter="polyattn.backends.fa3:attend",
        needs=Needs(
            platforms=_CUDA,
            package="sglang-kernel",
            # Cubins for 8.0, 8.6, 9.0a. On 8.9 it answers "invalid argument":
            # https://github.com/sgl-project/sglang/issues/38980
            architectures=("sm_80", "sm_86", "sm_90"),
            dtypes=HALF,
            max_head_dim=256,
            head_dim_multiple=8,
            masks=KEYS_ONLY,
            lse=False,
            rules=(
                rules.machine_is("x86_64", "sglang-kernel"),
                rules.holds_kernels("sglang-kernel"),
                rules.causal_lengths,
                rules.same_value_dim,
            ),
        ),
    ),
    Implementation(
        name="fa3_hopper",
        backend=Backend.FA,
        title="FlashAttention 3 (flash_attn_interface)",
        adapter="polyattn.backends.fa3_hopper:attend",
        needs=Needs(
            platforms=_CUDA,
            package="flash-attn-3",
            architectures=("sm_80", "sm_90"),
            dtypes=HALF,
            max_head_dim=256,
            head_dim_multiple=8,
            masks=KEYS_ONLY,
            lse=False,
            rules=(
                rules.cuda_from(("sm_90", (12, 3))),
                rules.holds_kernels("flash-attn-3"),
                rules.causal_lengths,
                rules.same_value_dim,
            ),
        ),
    ),
    Implementation(
        name="fa2",
        backend=Backend.FA,
        title="FlashAttention 2 (flash_attn)",
        adapter="polyattn.backends.fa2:attend",
        needs=Needs(
            platforms=_GPU,
            package="flash-attn",
            architectures=(
                *_AMPERE_AND_ADA,
                "sm_90",
                "sm_100",
                *_CONSUMER_BLACKWELL,
                *_CDNA,
            ),
            dtypes=HALF,
            max_head_dim=256,
            head_dim_multiple=8,
            masks=KEYS_ONLY,
            lse=False,
            rules=(
                rules.cuda_from(("sm_10", (12, 8)), ("sm_12", (12, 8))),
                rules.holds_kernels("flash-attn"),
                rules.causal_lengths,
                rules.same_value_dim,
            ),
        ),
    ),
    Implementation(
        name="sdpa",
        backend=Backend.TORCH_SDPA,
        title="torch.nn.functional.scaled_dot_product_attention, torch's own kernel choice",
        adapter="polyattn.backends.torch_sdpa:attend",
        evidence="run on a CPU; not run on other hardware",
        needs=Needs(lse=False, rules=(rules.scores_that_metal_addresses,)),
    ),
    Implementation(
        name="sdpa_chunked",
        backend=Backend.TORCH_SDPA,
        title="the same on Metal, a part of the queries at a time",
        adapter="polyattn.backends.torch_sdpa_chunked:attend",
        evidence="its arithmetic run on a CPU; not run on hardware",
        needs=Needs(platforms=(PlatformName.MPS,), lse=False),
    ),
    Implementation(
        name="sage1",
        backend=Backend.SAGE_ATTN,
        title="SageAttention 1 (Triton, INT8)",
        adapter="polyattn.backends.sage1:attend",
        fidelity=Fidelity.LOSSY,
        needs=Needs(
            platforms=_CUDA,
            package="sageattention",
            # Its kernels are compiled on first use; below 8.0 that fails:
            # https://github.com/thu-ml/SageAttention/issues/63
            architectures=(
                *_AMPERE_AND_ADA,
                "sm_90",
                *_DATACENTER_BLACKWELL,
                *_CONSUMER_BLACKWELL,
            ),
            dtypes=HALF,
            head_dims=(64, 96, 128),
            masks=UNMASKED,
            lse=False,
            rules=(
                rules.version_from("sageattention", 1, before=2),
                rules.not_missing("triton"),
                rules.whole_key_blocks,
                rules.causal_lengths,
                rules.same_value_dim,
            ),
        ),
    ),
    Implementation(
        name="sage2",
        backend=Backend.SAGE_ATTN,
        title="SageAttention 2 (INT8 and FP8)",
        adapter="polyattn.backends.sage2:attend",
        fidelity=Fidelity.LOSSY,
        needs=Needs(
            platforms=_CUDA,
            package="sageattention",
            # What its sageattn() dispatches on: 10.0 is compiled for, but raises ValueError.
            architectures=("sm_80", "sm_86", "sm_89", "sm_90", *_CONSUMER_BLACKWELL),
            dtypes=HALF,
            max_head_dim=128,
            masks=UNMASKED,
            lse=False,
            rules=(
                rules.version_from("sageattention", 2),
                rules.not_missing("triton"),
                # 8.9's FP16 accumulation needs 12.8:
                # https://github.com/thu-ml/SageAttention/pull/202
                rules.cuda_from(
                    ("sm_89", (12, 8)), ("sm_90", (12, 3)), ("sm_12", (12, 8)), ("sm_8", (12, 0))
                ),
                rules.holds_kernels("sageattention"),
                rules.causal_lengths,
                rules.same_value_dim,
            ),
        ),
    ),
    Implementation(
        name="sage3",
        backend=Backend.SAGE_ATTN_3,
        title="SageAttention 3 (FP4)",
        adapter="polyattn.backends.sage3:attend",
        fidelity=Fidelity.LOSSY,
        needs=Needs(
            platforms=_CUDA,
            package="sageattn3",
            # Built for 10.0a, 12.0a and 12.1a, which run on those devices only.
            architectures=("sm_100", *_CONSUMER_BLACKWELL),
            dtypes=HALF,
            head_dims=(64, 128),
            masks=UNMASKED,
            grouped_heads=False,
            custom_scale=False,
            lse=False,
            rules=(
                rules.cuda_from(("sm_", (12, 8))),
                rules.holds_kernels("sageattn3"),
                rules.causal_lengths,
                rules.same_value_dim,
            ),
        ),
    ),
    Implementation(
        name="aiter",
        backend=Backend.AITER,
        title="AMD aiter flash attention",
        adapter="polyattn.backends.aiter:attend",
        needs=Needs(
            platforms=(PlatformName.ROCM,),
            package="amd-aiter",
            architectures=("gfx942", "gfx950"),
            dtypes=HALF,
            max_head_dim=256,
            head_dim_multiple=8,
            masks=UNMASKED,
            grouped_heads=False,
            lse=False,
            rules=(rules.causal_lengths, rules.same_value_dim),
        ),
    ),
)
