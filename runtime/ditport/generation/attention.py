"""The attention options, handed to polyattn: checked before loading, attached after."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from ditport.errors import AttentionRefused, UsageError
from ditport.options import nonempty, one_of, setting
from polyattn.errors import AttentionError

if TYPE_CHECKING:
    from polyattn.facts import PlatformFacts
    from polyattn.preferences import AttentionPreferences
    from polyattn.vocabulary import OnSubstitution

# diffusers' own names for kernels, which sglang passes through for diffusers pipelines.
DIFFUSERS_NAMES: Final = {
    "flash": "fa",
    "flash_hub": "fa",
    "_flash_3": "fa3",
    "_flash_3_hub": "fa3",
    "flash_4_hub": "fa4",
    "native": "torch_sdpa",
    "sage": "sage_attn",
    "sage_hub": "sage_attn",
}


@dataclass(frozen=True)
class AttentionSettings:
    """The attention options."""

    attention_backend: str | None = setting(
        "--attention-backend",
        "--diffusers-attention-backend",
        default=None,
        parse=nonempty,
        metavar="BACKEND",
        help="auto (default), fa, torch_sdpa, sage_attn ...; `ditport backends` lists them",
    )
    component_attention_backends: tuple[str, ...] = setting(
        "--component-attention-backends",
        default=(),
        parse=nonempty,
        metavar="COMPONENT=BACKEND",
        many=True,
        help="for single components or roles: text_encoder=torch_sdpa,transformer.cross=fa",
    )
    attention_backend_config: str | None = setting(
        "--attention-backend-config",
        default=None,
        parse=nonempty,
        metavar="CONFIG",
        help="a .json or .yaml file, a JSON object, or key=value,key=value",
    )
    mask_strategy_file_path: str | None = setting(
        "--mask-strategy-file-path",
        default=None,
        parse=nonempty,
        metavar="FILE",
        hidden=True,
        help="the same as --attention-backend-config mask_strategy_file_path=FILE",
    )
    on_substitution: str = setting(
        "--on-substitution",
        default="warn",
        parse=one_of("warn", "error"),
        metavar="warn|error",
        help="what to do when a requested backend cannot serve (default warn)",
    )


def preferences(
    settings: AttentionSettings,
    facts: PlatformFacts,
    components: Collection[str],
    environ: Mapping[str, str],
) -> AttentionPreferences:
    """What the user asked, checked against this machine and this model's components."""
    backend = settings.attention_backend
    if backend is not None:
        backend = DIFFUSERS_NAMES.get(backend, backend)
    config = settings.attention_backend_config
    if settings.mask_strategy_file_path is not None:
        if config is not None:
            raise UsageError(
                "--mask-strategy-file-path and --attention-backend-config are both given.",
                "",
                "Put mask_strategy_file_path into the config.",
            )
        config = f"mask_strategy_file_path={settings.mask_strategy_file_path}"
    from polyattn.preferences import preferences_from_options
    from polyattn.selector import check_preferences

    try:
        asked = preferences_from_options(
            attention_backend=backend,
            component_attention_backends=settings.component_attention_backends,
            attention_backend_config=config,
            on_substitution=cast("OnSubstitution", settings.on_substitution),
            environ=environ,
        )
        check_preferences(asked, facts, components)
    except AttentionError as error:
        raise AttentionRefused(str(error)) from error
    return asked


def attach(pipeline: Any, asked: AttentionPreferences, facts: PlatformFacts) -> Any:
    """Attach polyattn to a pipeline; the result counts what runs."""
    from polyattn.integrations import diffusers

    try:
        return diffusers.attach(pipeline, asked, facts)
    except AttentionError as error:
        raise AttentionRefused(str(error)) from error
