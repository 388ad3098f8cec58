from __future__ import annotations

from pathlib import Path

import pytest

from images.errors import InvalidPlatforms
from images.platforms import PLATFORMS, ROOT, load

TEXT = PLATFORMS.read_text(encoding="utf-8")


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "platforms.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_table_loads_and_names_files_that_exist():
    platforms = load()
    assert [variant.name for variant in platforms.variants] == ["cpu"]
    for variant in platforms.variants:
        assert (ROOT / variant.lock).is_file()
        assert variant.tag == f"ditport:{variant.name}"
        assert variant.release_tag("1.2") == f"ditport:1.2-{variant.name}"


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('summary = "', 'summery = "', "variants.cpu.summary"),
        ('extra = "cpu"', "extra = 3", "variants.cpu.extra"),
        ('base = "debian:bookworm-slim"', 'base = ""', "variants.cpu.base"),
        ("max_megabytes = 1300", "max_megabytes = -1", "variants.cpu.max_megabytes"),
        ("max_megabytes = 1300", "max_megabytes = true", "variants.cpu.max_megabytes"),
        ('backends = ["torch_sdpa"]', "backends = [1]", "variants.cpu.backends"),
        ("[variants.cpu.torch]", "[variants.cpu.tarch]", "variants.cpu.torch"),
        ("[variants.cpu.trim]", 'cuda = "no"\n[variants.cpu.trim]', "variants.cpu.torch.cuda"),
        ('repository = "ditport"', 'repository = "ditport"\nother = 1', "other"),
    ],
)
def test_a_mistake_is_named_by_its_whole_key(tmp_path: Path, old: str, new: str, key: str):
    assert old in TEXT
    with pytest.raises(InvalidPlatforms, match=rf"platforms.toml: {key} must be"):
        load(written(tmp_path, TEXT.replace(old, new)))


def test_a_variant_that_cannot_be_a_tag_is_refused(tmp_path: Path):
    with pytest.raises(InvalidPlatforms, match="'CPU' cannot name a variant"):
        load(written(tmp_path, TEXT.replace("variants.cpu", "variants.CPU")))


def test_an_empty_table_of_variants_is_refused(tmp_path: Path):
    with pytest.raises(InvalidPlatforms, match="variants must be a table with at least one entry"):
        load(written(tmp_path, 'repository = "ditport"\nvariants = {}\n'))


@pytest.mark.parametrize("text", ["= 3", None])
def test_a_file_that_cannot_be_read_is_said(tmp_path: Path, text: str | None):
    path = tmp_path / "platforms.toml"
    if text is not None:
        written(tmp_path, text)
    with pytest.raises(InvalidPlatforms, match="cannot be read"):
        load(path)


def test_an_unknown_variant_is_answered_with_the_known_ones():
    with pytest.raises(InvalidPlatforms, match=r"platforms\.toml has: cpu"):
        load().variant("vulkan")
