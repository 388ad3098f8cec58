"""ditport: one diffusion runtime for every accelerator."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    # Reading package metadata takes longer than the rest of `ditport --help`.
    if name == "__version__":
        from importlib.metadata import version

        return version("ditport")
    raise AttributeError(name)
