"""platforms.toml as frozen dataclasses. Every mistake in it is named by its full key."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from images.errors import InvalidPlatforms

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT: Final = Path(__file__).parent.parent
PLATFORMS: Final = Path(__file__).parent / "platforms.toml"

# What may stand in a tag and in a nox session's name.
NAME: Final = re.compile(r"[a-z][a-z0-9]*")


@dataclass(frozen=True)
class Torch:
    """The pinned build of torch and the index that serves it."""

    version: str
    index: str


@dataclass(frozen=True)
class Trim:
    """What the build removes: whole paths, and the symbol tables of libraries."""

    patterns: tuple[str, ...]
    libraries: tuple[str, ...]


@dataclass(frozen=True)
class Variant:
    """One image line."""

    name: str
    repository: str
    summary: str
    base: str
    platform: str
    python: str
    extra: str
    lock: str
    backends: tuple[str, ...]
    max_megabytes: int
    torch: Torch
    trim: Trim

    @property
    def tag(self) -> str:
        """The image's name on this engine."""
        return f"{self.repository}:{self.name}"

    def release_tag(self, version: str) -> str:
        """The name that says which ditport it holds."""
        return f"{self.repository}:{version}-{self.name}"


@dataclass(frozen=True)
class Platforms:
    """All variants, in the order of the file."""

    repository: str
    variants: tuple[Variant, ...]

    def variant(self, name: str) -> Variant:
        for variant in self.variants:
            if variant.name == name:
                return variant
        known = ", ".join(variant.name for variant in self.variants)
        raise InvalidPlatforms(
            f"There is no image variant {name!r}.",
            evidence=f"{PLATFORMS.name} has: {known}",
            remedy="name one of these, or add a table [variants.<name>]",
        )


class _Table:
    """One TOML table being read: typed look-ups, and a last check that no key is left."""

    def __init__(self, source: Path, path: str, content: object) -> None:
        self._source = source
        self._path = path
        if not isinstance(content, dict):
            self._refuse(path, "a table", content)
        self._content: dict[str, object] = dict(content)

    def _refuse(self, key: str, wanted: str, found: object) -> NoReturn:
        seen = "nothing" if found is None else f"{type(found).__name__} {found!r}"
        raise InvalidPlatforms(
            f"{self._source.name}: {key or 'the file'} must be {wanted}.",
            evidence=seen,
            remedy=f"correct it in {self._source}",
        )

    def _key(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def text(self, key: str) -> str:
        found = self._content.pop(key, None)
        if not isinstance(found, str) or not found:
            self._refuse(self._key(key), "a text that is not empty", found)
        return found

    def number(self, key: str) -> int:
        found = self._content.pop(key, None)
        if isinstance(found, bool) or not isinstance(found, int) or found <= 0:
            self._refuse(self._key(key), "a whole number above 0", found)
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        found = self._content.pop(key, None)
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            self._refuse(self._key(key), "a list of texts", found)
        return tuple(found)

    def table(self, key: str) -> _Table:
        return _Table(self._source, self._key(key), self._content.pop(key, None))

    def tables(self) -> Mapping[str, _Table]:
        """Every remaining key as a table of its own."""
        found = {key: self.table(key) for key in tuple(self._content)}
        if not found:
            self._refuse(self._path, "a table with at least one entry", None)
        return found

    def close(self) -> None:
        """Refuse what no look-up asked for: a misspelt key must not be ignored."""
        if self._content:
            key = next(iter(self._content))
            self._refuse(self._key(key), "left out: no such key is known", self._content[key])


def _variant(name: str, repository: str, table: _Table) -> Variant:
    if not NAME.fullmatch(name):
        raise InvalidPlatforms(
            f"{name!r} cannot name a variant.",
            evidence=f"names match {NAME.pattern}",
            remedy="use lower-case letters and digits, a letter first",
        )
    torch, trim = table.table("torch"), table.table("trim")
    variant = Variant(
        name=name,
        repository=repository,
        summary=table.text("summary"),
        base=table.text("base"),
        platform=table.text("platform"),
        python=table.text("python"),
        extra=table.text("extra"),
        lock=table.text("lock"),
        backends=table.texts("backends"),
        max_megabytes=table.number("max_megabytes"),
        torch=Torch(version=torch.text("version"), index=torch.text("index")),
        trim=Trim(patterns=trim.texts("patterns"), libraries=trim.texts("libraries")),
    )
    for each in (torch, trim, table):
        each.close()
    return variant


def load(source: Path = PLATFORMS) -> Platforms:
    """Read and check `source`."""
    try:
        content = tomllib.loads(source.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InvalidPlatforms(
            f"{source.name} cannot be read.",
            evidence=str(error),
            remedy=f"restore or correct {source}",
        ) from error
    top = _Table(source, "", content)
    repository = top.text("repository")
    variants = top.table("variants").tables()
    top.close()
    return Platforms(
        repository=repository,
        variants=tuple(_variant(name, repository, table) for name, table in variants.items()),
    )
