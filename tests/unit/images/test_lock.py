from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from images import lock
from images.errors import LockFailed
from images.platforms import ROOT, load

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PLATFORMS = load()
LOCKS = sorted(lock.LOCKS.glob("*.txt"))


def requirements(text: str) -> list[str]:
    return re.findall(r"^[a-z0-9].*\n(?:[ \t].*\n)*", text, flags=re.MULTILINE)


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_requirement_is_pinned_with_a_hash(path: Path):
    text = path.read_text(encoding="utf-8")
    blocks = requirements(text)
    assert blocks
    for block in blocks:
        assert re.match(r"[a-z0-9-]+==\S+ ", block), block
        assert "--hash=sha256:" in block
    assert sum(map(len, blocks)) + len(lock.HEADER) == len(text)


@pytest.mark.parametrize("variant", PLATFORMS.variants, ids=lambda variant: variant.name)
def test_a_variants_lock_holds_every_dependency_and_the_pinned_torch(variant):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"][variant.extra]]
    # A marker on an older Python does not concern the image.
    names = {re.split(r"[\[<>=;! ]", each)[0] for each in wanted if "python_version <" not in each}
    text = (ROOT / variant.lock).read_text(encoding="utf-8")
    locked = set(re.findall(r"^([a-z0-9-]+)==", text, flags=re.MULTILINE))
    assert names <= locked
    assert f"torch=={variant.torch.version} " in text


def test_no_lock_is_left_over():
    assert set(LOCKS) == {each.target for each in lock.resolutions(PLATFORMS)}


def test_hashes_are_those_of_one_distribution():
    text = (
        f"torch==1 \\\n    --hash=sha256:{'a' * 64}\ntorchsde==1 \\\n    --hash=sha256:{'b' * 64}\n"
    )
    assert lock.hashes(text, "torch") == {"a" * 64}
    assert lock.hashes(text, "numpy") == frozenset()


def test_a_variant_is_resolved_for_its_own_platform_and_python():
    resolution = lock.variant_resolution(PLATFORMS.variant("cpu"))
    command = resolution.command(Path("r.in"), Path("c.txt"))
    assert "x86_64-manylinux_2_36" in command
    assert command[command.index("--python-version") + 1] == "3.11"
    assert "--generate-hashes" in command


def test_what_cannot_be_resolved_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    resolution = lock.Resolution(ROOT / "images" / "locks" / "none.txt", (), ("x",))

    def fail(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(argv, 1, "", "no versions of x")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(LockFailed, match="no versions of x"):
        lock.resolve(resolution)


def test_a_missing_uv_is_said(monkeypatch: pytest.MonkeyPatch):
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError("uv")

    monkeypatch.setattr(subprocess, "run", missing)
    with pytest.raises(LockFailed, match="uv is not installed"):
        lock.resolve(lock.Resolution(ROOT / "none.txt", ()))
