"""Packages of diffusers whose `__init__` imports all of their models, imported name by name.

`diffusers.models.autoencoders` imports forty autoencoders to give one, and so do its siblings.
Their `__init__` is a list of `from .module import Class`; a package in its place that reads this
list and imports a module when its class is asked for gives the same names. One whose `__init__`
holds anything else is left alone.
"""

from __future__ import annotations

import ast
import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Final

PACKAGES: Final = (
    "diffusers.models.autoencoders",
    "diffusers.models.controlnets",
    "diffusers.models.transformers",
    "diffusers.models.unets",
)


class LazyPackage(ModuleType):
    """A package that imports a module when one of its names is asked for."""

    _origins: dict[str, str]

    def __getattr__(self, name: str) -> Any:
        origin = self.__dict__.get("_origins", {}).get(name)
        if origin is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{self.__name__}.{origin}"), name)
        self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._origins})


class LazyLoader(Loader):
    """Makes a LazyPackage instead of running an `__init__`."""

    def __init__(self, origins: dict[str, str]) -> None:
        self.origins = origins

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = LazyPackage(spec.name)
        module._origins = self.origins
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


class Packages(MetaPathFinder):
    """Finds PACKAGES before the ordinary finder does."""

    def find_spec(
        self, name: str, path: Any, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in PACKAGES:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is None or spec.origin is None:
            return None
        origins = read_origins(Path(spec.origin).read_text(encoding="utf-8"))
        if origins is None:
            return None
        spec.loader = LazyLoader(origins)
        return spec


def read_origins(source: str) -> dict[str, str] | None:
    """The module of every name that an `__init__` gives, or None if it does anything else."""
    origins: dict[str, str] = {}

    def read(statements: list[ast.stmt]) -> bool:
        for statement in statements:
            if isinstance(statement, ast.If):
                # `if is_torch_available():` and the like, without an alternative.
                if statement.orelse or not read(statement.body):
                    return False
            elif isinstance(statement, ast.ImportFrom) and statement.level == 1:
                if statement.module is None or any(
                    n.asname or n.name == "*" for n in statement.names
                ):
                    return False
                origins.update((alias.name, statement.module) for alias in statement.names)
            elif isinstance(statement, ast.ImportFrom):
                continue  # a helper for the condition, such as `...utils`
            elif not (
                isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            ):
                return False
        return True

    return origins if read(ast.parse(source).body) else None


def install() -> None:
    """Make PACKAGES lazy where they are not imported yet."""
    if not any(isinstance(finder, Packages) for finder in sys.meta_path):
        sys.meta_path.insert(0, Packages())
