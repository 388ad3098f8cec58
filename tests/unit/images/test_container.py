from __future__ import annotations

from pathlib import Path

from images.container import Container, Hardening, Mount


def test_a_run_is_denied_everything_unless_told():
    arguments = Container("ditport:cpu", ("--help",)).sdk_arguments()
    assert arguments == {
        "image": "ditport:cpu",
        "command": ["--help"],
        "network_mode": "none",
        "environment": {},
        "volumes": {},
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "tmpfs": {"/tmp": ""},
        "pids_limit": 512,
    }


def test_what_is_given_is_passed():
    container = Container(
        "ditport:cpu",
        entrypoint="python",
        user="12345:0",
        workdir="/src",
        network="bridge",
        mounts=(Mount(Path("/a"), "/b"), Mount(Path("/c"), "/d", read_only=False)),
        hardening=Hardening(read_only=False),
    )
    arguments = container.sdk_arguments()
    assert arguments["entrypoint"] == ["python"]
    assert arguments["user"] == "12345:0"
    assert arguments["working_dir"] == "/src"
    assert arguments["network_mode"] == "bridge"
    assert arguments["volumes"] == {
        "/a": {"bind": "/b", "mode": "ro"},
        "/c": {"bind": "/d", "mode": "rw"},
    }
    assert arguments["read_only"] is False
