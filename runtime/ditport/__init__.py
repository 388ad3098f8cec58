"""ditport: one diffusion runtime for every accelerator."""

from importlib.metadata import version

__version__ = version("ditport")
