"""Each error names the cause, the evidence and the remedy."""

from __future__ import annotations


class ImagesError(Exception):
    """Base of what `python -m images` reports without a traceback."""

    def __init__(self, cause: str, *, evidence: str = "", remedy: str = "") -> None:
        self.cause = cause
        self.evidence = evidence
        self.remedy = remedy
        lines = [cause, evidence and f"  seen: {evidence}", remedy and f"  do:   {remedy}"]
        super().__init__("\n".join(line for line in lines if line))


class InvalidPlatforms(ImagesError):
    """platforms.toml does not say what it must."""


class EngineMissing(ImagesError):
    """No Docker Engine answers, or one of its parts is not installed."""


class ImageMissing(ImagesError):
    """The image has not been built on this engine."""


class BuildFailed(ImagesError):
    """The build ended with an error."""


class WheelRefused(ImagesError):
    """A wheel is not the one that the lock names."""


class LockFailed(ImagesError):
    """The lock could not be resolved."""


class PromiseBroken(ImagesError):
    """An image does not do what platforms.toml promises."""


class Outdated(ImagesError):
    """A generated file is not what its generator writes."""
