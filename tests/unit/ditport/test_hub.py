"""Hub models: huggingface_hub's own variables honoured, and its errors told in words.

Each case is a process: huggingface_hub reads its variables when it is imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ditport.models.hub import RemoteFile, wanted_files
from tests.unit.ditport.fake_hub import COMMIT, FakeHub, running
from tests.unit.ditport.model_folders import write_model

NAME = "owner/small-wan"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    fake = FakeHub()
    fake.add_folder(NAME, write_model(tmp_path / "published"))
    fake.repositories[NAME] |= {"README.md": b"read me", "vae/diffusion_pytorch_model.bin": b"old"}
    with running(fake):
        yield fake


def ditport(hub: FakeHub, home: Path, *words: str, **environ: str) -> tuple[int, str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HF_", "HUGGING", "http", "HTTP", "all_proxy", "ALL_PROXY"))
    }
    done = subprocess.run(
        [sys.executable, "-m", "ditport", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={
            **inherited,
            "HF_HOME": str(home / "hf"),
            "HF_ENDPOINT": hub.endpoint,
            "HF_HUB_ETAG_TIMEOUT": "2",
            **environ,
        },
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def test_download_then_offline(hub: FakeHub, tmp_path: Path) -> None:
    code, out, err = ditport(hub, tmp_path, "download", NAME, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["revision"] == COMMIT
    assert found["pipeline"] == "WanPipeline"
    assert f"downloaded {NAME} at {COMMIT[:12]}" in err
    snapshot = Path(found["path"])
    assert (snapshot / "vae" / "diffusion_pytorch_model.safetensors").is_file()
    assert not (snapshot / "vae" / "diffusion_pytorch_model.bin").exists()
    assert not (snapshot / "README.md").exists()

    fetched = len(hub.paths("GET"))
    code, out, err = ditport(hub, tmp_path, "download", NAME, "--quiet", HF_HUB_OFFLINE="1")
    assert (code, out.strip(), err) == (0, str(snapshot), "")
    assert len(hub.paths("GET")) == fetched

    code, out, _ = ditport(hub, tmp_path, "models", "--json", HF_HUB_OFFLINE="1")
    listed = [model for model in json.loads(out) if model["name"] == NAME]
    assert [(m["revision"], m["refs"], m["problem"]) for m in listed] == [(COMMIT, ["main"], None)]
    assert listed[0]["size_bytes"] > 0
    assert NAME in ditport(hub, tmp_path, "models")[1]


def test_a_cached_model_outlives_its_hub(hub: FakeHub, tmp_path: Path) -> None:
    assert ditport(hub, tmp_path, "download", NAME)[0] == 0
    code, _, err = ditport(
        hub, tmp_path, "download", NAME, "--quiet", HF_ENDPOINT="http://127.0.0.1:9"
    )
    assert (code, err) == (0, "")


def test_a_second_download_fetches_no_weights(hub: FakeHub, tmp_path: Path) -> None:
    assert ditport(hub, tmp_path, "download", NAME)[0] == 0
    hub.requests.clear()
    assert ditport(hub, tmp_path, "download", NAME)[0] == 0
    assert not [path for path in hub.paths("GET") if path.endswith(".safetensors")]


def test_a_revision(hub: FakeHub, tmp_path: Path) -> None:
    other = "f" * 40
    hub.revisions |= {"v2": other, other: other}
    code, out, err = ditport(hub, tmp_path, "download", NAME, "--revision", "v2", "--json")
    assert code == 0, err
    assert json.loads(out)["revision"] == other
    code, _, err = ditport(hub, tmp_path, "download", NAME, "--revision", "v3")
    assert code == 2
    assert "no revision 'v3'" in err


def test_missing_and_private(hub: FakeHub, tmp_path: Path) -> None:
    code, _, err = ditport(hub, tmp_path, "download", "owner/absent")
    assert code == 2
    assert "There is no model owner/absent" in err
    assert "HF_TOKEN" in err  # it may be private


def test_gated_names_the_page(hub: FakeHub, tmp_path: Path) -> None:
    hub.gated.add(NAME)
    hub.tokens.add("hf_right")
    words = ("generate", "--model-path", NAME, "--prompt", "p")
    code, _, err = ditport(hub, tmp_path, *words)
    assert code == 2
    assert "no token was given" in err
    assert f"{hub.endpoint}/{NAME}" in err
    code, _, err = ditport(hub, tmp_path, *words, HF_TOKEN="hf_wrong")
    assert code == 2
    assert "your token has no access" in err
    assert ditport(hub, tmp_path, "download", NAME, HF_TOKEN="hf_right")[0] == 0


def test_a_token_file(hub: FakeHub, tmp_path: Path) -> None:
    hub.gated.add(NAME)
    hub.tokens.add("hf_right")
    (tmp_path / "token").write_text("hf_right\n")
    environ = {"HF_TOKEN_PATH": str(tmp_path / "token")}
    code, _, err = ditport(hub, tmp_path, "download", NAME, **environ)
    assert code == 0, err


def test_offline_and_not_cached(hub: FakeHub, tmp_path: Path) -> None:
    words = ("generate", "--model-path", NAME, "--prompt", "p")
    code, _, err = ditport(hub, tmp_path, *words, HF_HUB_OFFLINE="1")
    assert code == 2
    assert "offline mode is on" in err
    assert f"ditport download {NAME}" in err
    assert hub.requests == []


def test_a_hub_that_cannot_be_reached(hub: FakeHub, tmp_path: Path) -> None:
    code, _, err = ditport(hub, tmp_path, "download", NAME, HF_ENDPOINT="http://127.0.0.1:9")
    assert code == 2
    assert "cannot be reached" in err
    assert "http://127.0.0.1:9" in err


def test_a_repository_of_something_else(hub: FakeHub, tmp_path: Path) -> None:
    hub.repositories["owner/llm"] = {"config.json": b"{}", "model.safetensors": b"x"}
    code, _, err = ditport(hub, tmp_path, "download", "owner/llm")
    assert code == 2
    assert "no model_index.json" in err
    assert "single file model.safetensors" in err


def test_a_download_that_breaks_off_is_resumed(hub: FakeHub, tmp_path: Path) -> None:
    big = "transformer/diffusion_pytorch_model.safetensors"
    content = hub.repositories[NAME][big] + bytes(12_000_000)
    hub.repositories[NAME][big] = content
    hub.break_after = 11_000_000
    environ = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DOWNLOAD_TIMEOUT": "2"}
    code, _, err = ditport(hub, tmp_path, "download", NAME, **environ)
    resumed = [
        headers.get("Range") or headers.get("range")
        for method, path, headers in hub.requests
        if method == "GET" and path.endswith(big)
    ]
    if code != 0:  # huggingface_hub gave up retrying: nothing is lost
        assert code == 1, err
        assert "is resumed" in err or "broke off" in err
        hub.break_after = None
        code, _, err = ditport(hub, tmp_path, "download", NAME, **environ)
        resumed += [
            headers.get("Range") or headers.get("range")
            for method, path, headers in hub.requests
            if method == "GET" and path.endswith(big)
        ]
    assert code == 0, err
    assert any(resumed), "nothing was asked for from the middle"


def files(*names: str) -> tuple[RemoteFile, ...]:
    return tuple(RemoteFile(name, 1) for name in names)


INDEX = {"vae": ["diffusers", "V"], "unet": ["diffusers", "U"], "none": [None, None]}


@pytest.mark.parametrize(
    ("listing", "wanted"),
    [
        (("vae/a.safetensors", "vae/a.bin"), ("vae/a.safetensors",)),
        (("vae/a.bin",), ("vae/a.bin",)),
        (("vae/a.safetensors", "vae/a.fp16.safetensors"), ("vae/a.safetensors",)),
        (("vae/a.fp16.safetensors",), ("vae/a.fp16.safetensors",)),
        (("vae/config.json", "vae/model.onnx", "flax/x.msgpack"), ("vae/config.json",)),
        (("whole.safetensors", "model_index.json", "README.md"), ("model_index.json",)),
        (("none/a.safetensors", "other/a.safetensors"), ()),
    ],
)
def test_only_what_loading_needs(listing: tuple[str, ...], wanted: tuple[str, ...]) -> None:
    assert tuple(file.name for file in wanted_files(files(*listing), INDEX)) == wanted
