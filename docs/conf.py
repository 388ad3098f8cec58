"""Sphinx configuration: `nox -s docs` builds these pages into site/."""

from importlib.metadata import version as _version

project = "ditport"
author = "the ditport authors"
project_copyright = "2026, the ditport authors"
version = release = _version("ditport")

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["generated/README.md"]
html_theme = "furo"
html_title = f"ditport {release}"
nitpicky = True
