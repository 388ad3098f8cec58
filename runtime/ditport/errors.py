"""Causes of failure, one class each, with the exit code that a shell sees.

Every message is cause, evidence, remedy. 2 means: refused before any model was loaded, the
request can be mended. 1: something failed while working. 3: out of memory. 130: interrupted, and
143 where SIGTERM did it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


class DitportError(Exception):
    """Base of everything that ditport raises on purpose."""

    exit_code: ClassVar[int] = 1

    def __init__(self, cause: str, evidence: str = "", remedy: str = "") -> None:
        super().__init__(" ".join(part for part in (cause, evidence, remedy) if part))
        self.cause = cause
        self.evidence = evidence
        self.remedy = remedy

    def to_json(self) -> dict[str, object]:
        """What `--json` prints in place of a result."""
        return {
            "error": type(self).__name__,
            "cause": self.cause,
            "evidence": self.evidence,
            "remedy": self.remedy,
            "exit_code": self.exit_code,
        }


class Refused(DitportError):
    """The request cannot be served as it stands; nothing was loaded."""

    exit_code = 2


class UsageError(Refused):
    """The command line or a config file cannot be understood."""


class UnknownOption(UsageError):
    """An option or a key that does not exist."""

    def __init__(self, what: str, given: str, known: Iterable[str]) -> None:
        near = nearest(given, known)
        super().__init__(f"Unknown {what} {given}.", "", f"Did you mean {near}?" if near else "")


class NotInThisVersion(Refused):
    """A documented option that this version understands but cannot serve."""


class PromptFileRefused(Refused):
    """A prompt file cannot be read, or one of its lines cannot be served."""


class ModelMissing(Refused):
    """There is no such folder, file, repository or revision."""


class ModelIncomplete(Refused):
    """A folder or a cached snapshot lacks files that its own index lists."""


class ModelForeign(Refused):
    """A folder or file that is something else than a diffusers model."""


class ModelOffline(Refused):
    """The model is not in the cache and the hub must not, or cannot, be asked."""


class ModelGated(Refused):
    """The hub wants a login or an accepted licence."""


class RemoteCodeRefused(Refused):
    """The model brings Python code of its own and `--trust-remote-code` was not given."""


class SizeRefused(Refused):
    """Height, width or frames that the VAE or the patch size cannot take."""


class InputRefused(Refused):
    """An input image cannot be read, is missing, or the pipeline takes none."""


class DtypeRefused(Refused):
    """A precision that does not exist or that the device cannot compute."""


class DeviceRefused(Refused):
    """A device that this machine does not have."""


class AttentionRefused(Refused):
    """An attention request that cannot be served (the cause is polyattn's)."""


class LoraRefused(Refused):
    """A LoRA that is not there or that the pipeline cannot load."""


class OutputRefused(Refused):
    """Nothing can be written where the output should go."""


class FileUnreadable(Refused):
    """`inspect` was given something that holds no ditport metadata."""


class DiskFull(DitportError):
    """The disk filled up. Before loading this is a refusal (`exit_code` 2), later a failure."""

    def __init__(
        self, cause: str, evidence: str = "", remedy: str = "", *, before_loading: bool = False
    ) -> None:
        super().__init__(cause, evidence, remedy)
        if before_loading:
            self.exit_code = 2  # type: ignore[misc]  # one cause, two moments


class LoadFailed(DitportError):
    """The files are all there, and the pipeline still cannot be built from them."""


class GenerationFailed(DitportError):
    """The pipeline raised while generating."""


class DownloadFailed(DitportError):
    """A download broke off. What arrived is kept, and the next try resumes."""


class OutputFailed(DitportError):
    """Encoding or writing failed after generation."""


class OutOfMemory(DitportError):
    """Not enough device or host memory."""

    exit_code = 3


def nearest(given: str, known: Iterable[str], closeness: float = 0.6) -> str | None:
    """The known word closest to a misspelt one, or None if nothing is close."""
    found = difflib.get_close_matches(given, list(known), n=1, cutoff=closeness)
    return found[0] if found else None
