"""What the user asked for: the flag, components, roles, options, and what to do when it fails."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from polyattn.capabilities import backend_names, rows
from polyattn.errors import InvalidOptions, UnknownName
from polyattn.sparse.mask_strategy import is_mask_strategy
from polyattn.vocabulary import ALIASES, OnSubstitution, Role

# Read in this order; the first that is set wins. The second is sglang-diffusion's.
CONFIG_VARIABLES: Final = ("DITPORT_ATTENTION_CONFIG", "SGLANG_DIFFUSION_ATTENTION_CONFIG")

# Components that denoise, by the names that diffusers' pipelines give them: transformer_2,
# unconditional_transformer, image_unet, prior_prior; not prior_text_encoder. `decoder` is a
# denoiser in StableCascade, Wuerstchen and UnCLIP. The flag concerns these; encoders and VAEs
# stay automatic unless named.
DENOISERS: Final = re.compile(r"(\w+_)?(transformer|unet|controlnet|prior)(_\d+)?|decoder")

OptionValue = str | int | float | bool | tuple["OptionValue", ...] | None


@dataclass(frozen=True)
class Request:
    """A backend that was asked for, and the implementation where the name said one (`fa3`)."""

    backend: str
    implementation: str | None = None

    def __str__(self) -> str:
        return self.implementation or self.backend


@dataclass(frozen=True)
class AttentionPreferences:
    """Everything a user can say about attention. Hashable: it is part of every lookup."""

    backend: Request | None = None
    components: tuple[tuple[str, Request], ...] = ()
    roles: tuple[tuple[str, Role, Request], ...] = ()
    options: tuple[tuple[str, OptionValue], ...] = ()
    options_source: str | None = None
    on_substitution: OnSubstitution = "warn"

    @property
    def requests(self) -> tuple[tuple[str, Request], ...]:
        """Every request with the words that made it, strongest first."""
        return (
            *((f"{name}.{role}={request}", request) for name, role, request in self.roles),
            *((f"{name}={request}", request) for name, request in self.components),
            *(((f"--attention-backend {self.backend}", self.backend),) if self.backend else ()),
        )

    @property
    def named_components(self) -> tuple[str, ...]:
        """The components that a request names."""
        named = [name for name, _, _ in self.roles] + [name for name, _ in self.components]
        return tuple(dict.fromkeys(named))


NO_PREFERENCES: Final = AttentionPreferences()


def is_denoiser(component: str) -> bool:
    """Whether `--attention-backend` concerns this component."""
    return DENOISERS.fullmatch(component) is not None


def parse_backend(name: str) -> Request:
    """`fa`, `fa3`, `TORCH_SDPA` ... as a Request; raises UnknownName with the nearest name."""
    lowered = name.strip().lower().replace("-", "_")
    if lowered in ALIASES:
        return Request(*ALIASES[lowered])
    if lowered in backend_names():
        return Request(lowered)
    for row in rows():
        if row.name == lowered:
            return Request(str(row.backend), row.name)
    raise UnknownName("attention backend", name, {*backend_names(), *ALIASES})


def parse_component_backends(
    text: str,
) -> tuple[tuple[tuple[str, Request], ...], tuple[tuple[str, Role, Request], ...]]:
    """`text_encoder=torch_sdpa,transformer.cross=fa` as (components, roles)."""
    components: list[tuple[str, Request]] = []
    roles: list[tuple[str, Role, Request]] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        target, equals, backend = part.partition("=")
        component, dot, role = target.strip().partition(".")
        if not equals or not component or not backend.strip():
            raise InvalidOptions(
                f"{part!r} in --component-attention-backends is not COMPONENT=BACKEND or "
                "COMPONENT.ROLE=BACKEND, such as transformer.cross=torch_sdpa."
            )
        request = parse_backend(backend)
        if not dot:
            components.append((component, request))
            continue
        if role not in tuple(str(known) for known in Role):
            raise UnknownName("attention role", role, (str(known) for known in Role))
        roles.append((component, Role(role), request))
    targets = [name for name, _ in components] + [f"{name}.{role}" for name, role, _ in roles]
    twice = sorted({target for target in targets if targets.count(target) > 1})
    if twice:
        raise InvalidOptions(
            f"--component-attention-backends names {', '.join(twice)} more than once; "
            "give each component or role one backend."
        )
    return tuple(components), tuple(roles)


def parse_options(text: str) -> tuple[tuple[str, OptionValue], ...]:
    """A path (.json, .yaml, .yml), a JSON object, or `k=v,k2=v2`, as sorted option pairs.

    The forms are sglang-diffusion's `--attention-backend-config`; unlike there, a path with
    another suffix and a file that is not there are errors. The path of an upstream mask strategy
    stands for `mask_strategy_file_path`.
    """
    stripped = text.strip()
    if stripped.startswith("{"):
        return _freeze(_load_json(stripped, "the attention config"))
    path = Path(stripped)
    # `mask_strategy_file_path=strategy.json` ends like a path and is none.
    if path.suffix in (".json", ".yaml", ".yml") and ("=" not in stripped or path.exists()):
        loaded = _load_file(path)
        if is_mask_strategy(loaded):
            # sglang's older form: the variable names the mask strategy itself.
            return (("mask_strategy_file_path", str(path)),)
        return _freeze(loaded)
    # Path.exists() raises where the text is too long to be a file's name; this does not.
    if os.path.exists(path):  # noqa: PTH110
        raise InvalidOptions(
            f"The attention config {stripped} is neither .json nor .yaml; rename or convert it."
        )
    pairs: dict[str, object] = {}
    for part in filter(None, (piece.strip() for piece in stripped.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise InvalidOptions(
                f"{part!r} in the attention config is not KEY=VALUE. "
                "A list needs the JSON form or a .json or .yaml file."
            )
        pairs[key.strip()] = _scalar(value.strip())
    return _freeze(pairs)


def preferences_from_options(
    attention_backend: str | None = None,
    component_attention_backends: str | Iterable[str] | None = None,
    attention_backend_config: str | None = None,
    on_substitution: OnSubstitution = "warn",
    environ: Mapping[str, str] | None = None,
) -> AttentionPreferences:
    """The preferences that command-line words and the environment express.

    `auto` (or no flag) leaves the choice to the platform. Options are read from the flag, else
    from the first of CONFIG_VARIABLES that is set. Raises UnknownName or InvalidOptions.
    """
    if component_attention_backends is None:
        component_attention_backends = ""
    elif not isinstance(component_attention_backends, str):
        component_attention_backends = ",".join(component_attention_backends)
    components, roles = parse_component_backends(component_attention_backends)
    named = (attention_backend or "").strip().lower() not in ("", "auto")
    source, text = "--attention-backend-config", attention_backend_config
    if not text:
        variables = ((name, (environ or {}).get(name)) for name in CONFIG_VARIABLES)
        source, text = next(((n, v) for n, v in variables if v), ("", None))
    return AttentionPreferences(
        backend=parse_backend(attention_backend) if named and attention_backend else None,
        components=components,
        roles=roles,
        options=parse_options(text) if text else (),
        options_source=source or None,
        on_substitution=on_substitution,
    )


def _load_file(path: Path) -> dict[str, object]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidOptions(
            f"The attention config {path} cannot be read: {error.strerror}."
        ) from None
    except UnicodeDecodeError:
        raise InvalidOptions(f"The attention config {path} is not UTF-8 text.") from None
    if path.suffix == ".json":
        return _load_json(text, str(path))
    try:
        import yaml  # type: ignore[import-untyped]  # huggingface_hub brings it; only a YAML config needs it
    except ModuleNotFoundError:
        raise InvalidOptions(
            f"Reading {path} needs PyYAML, which is not installed; use the .json form."
        ) from None
    try:
        loaded = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidOptions(f"The attention config {path} is not YAML: {error}.") from None
    return _mapping(loaded, str(path))


def _load_json(text: str, where: str) -> dict[str, object]:
    try:
        return _mapping(json.loads(text), where)
    except json.JSONDecodeError as error:
        raise InvalidOptions(f"{where} is not JSON: {error}.") from None


def _mapping(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise InvalidOptions(f"{where} must be a mapping of options, not {type(value).__name__}.")
    return {str(key): item for key, item in value.items()}


def _scalar(text: str) -> OptionValue:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _freeze(options: Mapping[str, object]) -> tuple[tuple[str, OptionValue], ...]:
    return tuple((key, _frozen(key, options[key])) for key in sorted(options))


def _frozen(key: str, value: object) -> OptionValue:
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(key, item) for item in value)
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise InvalidOptions(f"The attention option {key!r} has a value of {type(value).__name__}.")
