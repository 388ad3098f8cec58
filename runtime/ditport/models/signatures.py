"""What a pipeline class takes, read from diffusers' source without importing it.

Importing a pipeline costs seconds; its call parameters and their defaults are in the text.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

UNKNOWN: Final = object()  # a default that is not a literal
MULTIPLE: Final = re.compile(r"\bheight % (\d+) != 0")


@dataclass(frozen=True)
class Signature:
    """A pipeline class: its module, its bases and its `__call__` parameters with defaults."""

    class_name: str
    module: str
    bases: tuple[str, ...]
    parameters: Mapping[str, object] | None = field(hash=False)  # None: `__call__` is inherited
    multiple: int = 1  # of which its input check wants heights and widths

    def accepts(self, parameter: str) -> bool:
        """Whether a call takes the parameter. Where it is inherited, nothing is ruled out."""
        return self.parameters is None or parameter in self.parameters

    @property
    def loads_lora(self) -> bool:
        """Whether the class can load a LoRA."""
        return any("Lora" in base for base in self.bases)

    def default(self, parameter: str) -> object:
        """The parameter's default, or None where it has none or none that is a literal."""
        value = (self.parameters or {}).get(parameter)
        return None if value is UNKNOWN else value


def package_folder(package: str) -> Path | None:
    """Where a package is installed, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def read_signature(class_name: str) -> Signature | None:
    """The signature of a diffusers pipeline class, or None if diffusers has no such class."""
    folder = package_folder("diffusers")
    if folder is None:
        return None
    needle = f"class {class_name}("
    for path in _likely_files(folder / "pipelines", class_name):
        source = path.read_text(encoding="utf-8")
        if needle not in source:
            continue
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and node.name == class_name:
                module = ".".join(("diffusers", *path.relative_to(folder).with_suffix("").parts))
                return Signature(
                    class_name=class_name,
                    module=module,
                    bases=tuple(ast.unparse(base) for base in node.bases),
                    parameters=_call_parameters(node),
                    multiple=max(map(int, MULTIPLE.findall(source)), default=1),
                )
    return None


def _likely_files(pipelines: Path, class_name: str) -> Iterator[Path]:
    # Most classes live in a sub-package whose name their own begins with (WanPipeline in wan/);
    # those are read first, since reading all files takes ten times as long.
    squeezed = class_name.lower()
    likely = [
        folder
        for folder in pipelines.iterdir()
        if folder.is_dir() and squeezed.startswith(folder.name.replace("_", ""))
    ]
    likely.sort(key=lambda folder: -len(folder.name))
    for folder in likely:
        yield from sorted(folder.glob("*.py"))
    for path in sorted(pipelines.glob("**/*.py")):
        if not any(folder in path.parents for folder in likely):
            yield path


def _call_parameters(node: ast.ClassDef) -> dict[str, object] | None:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__call__":
            arguments = item.args
            names = [argument.arg for argument in arguments.args if argument.arg != "self"]
            defaults = [_literal(default) for default in arguments.defaults]
            missing: list[object] = [UNKNOWN] * (len(names) - len(defaults))
            found = dict(zip(names, missing + defaults, strict=True))
            keyword = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            found.update((a.arg, UNKNOWN if d is None else _literal(d)) for a, d in keyword)
            return found
    return None


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return UNKNOWN
