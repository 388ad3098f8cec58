"""Which model: what the user named, and where it was found."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ditport.options import flag, nonempty, setting

HUB_ID: Final = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")
DEMO: Final = "demo"
DEMO_FOLDER: Final = Path(__file__).parent.parent / "demo" / "model"

Kind = Literal["demo", "folder", "file", "hub"]


@dataclass(frozen=True)
class ModelSettings:
    """The model options."""

    model_path: str = setting(
        "--model-path",
        "--model",
        default=DEMO,
        parse=nonempty,
        metavar="MODEL",
        help="a diffusers folder, a .safetensors file, a Hugging Face id such as "
        "Wan-AI/Wan2.1-T2V-1.3B-Diffusers, or demo, the model that is built in (default)",
    )
    revision: str | None = setting(
        "--revision",
        default=None,
        parse=nonempty,
        metavar="REVISION",
        help="branch, tag or commit of a Hugging Face id",
    )
    trust_remote_code: bool = setting(
        "--trust-remote-code",
        default=False,
        parse=flag,
        switch=True,
        help="run Python code that the model brings along",
    )
    component_path: tuple[str, ...] = setting(
        "--component-path",
        default=(),
        parse=nonempty,
        metavar="COMPONENT=FOLDER",
        many=True,
        help="take single components from elsewhere; --vae-path FOLDER means the same",
    )
    single_file_config: str | None = setting(
        "--single-file-config",
        default=None,
        parse=nonempty,
        metavar="MODEL",
        help="the diffusers folder or id that a .safetensors file goes with (default: guessed)",
    )
    backend: str = setting(
        "--backend",
        default="auto",
        parse=nonempty,
        metavar="auto|diffusers",
        hidden=True,
        help="accepted for sglang's command lines: ditport runs diffusers pipelines",
    )


@dataclass(frozen=True)
class ModelSource:
    """Where a model was found. `revision` is a commit for hub models, None for files."""

    name: str  # as the user named it
    kind: Kind
    path: Path
    revision: str | None = None
