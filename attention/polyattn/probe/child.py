"""Run a few lines of Python in a process of its own and learn what became of them.

Importing a GPU package can raise, exit, hang, print, or take the process down. Each is an answer,
and none of them may reach the caller.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import IO, Any, Final

from polyattn.probe.host import Host

_LONGEST: Final = 400  # characters of an error that are kept
_TAIL_BYTES: Final = 64 * 1024

# Runs before anything else in the child. `sys` is built in, so no file in the working folder can
# stand in for it; after that line the path is the caller's, without the working folder.
# The report goes to a copy of stdout under a secret word, so that whatever a package prints,
# replaces or closes cannot be taken for it. Ending by _exit keeps exit handlers out of the verdict.
_PRELUDE: Final = """
import sys
word, sys.path[:], arguments = sys.argv[1], sys.argv[2].split(chr(0x1f)), sys.argv[3:]
import json, os
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, OSError, ValueError):
    pass
out = os.dup(1)
def report(**result):
    text = "\\n" + word + json.dumps(result) + "\\n"
    os.write(out, text.encode())
    os._exit(0)
try:
    exec(arguments.pop(0))
except BaseException as error:
    text = " ".join(str(error).split())
    report(failure=type(error).__name__ + (": " + text if text else ""))
report(value=None)
"""


@dataclass(frozen=True)
class Outcome:
    """What the child reported, or how it failed, in one line."""

    value: Any = None
    failure: str | None = None


def run(body: str, *arguments: str, host: Host, seconds: float) -> Outcome:
    """Run `body` in a fresh interpreter; it may use `arguments` and call `report(value=...)`."""
    word = secrets.token_hex(16)
    argv = [sys.executable, "-c", _PRELUDE, word, chr(0x1F).join(host.python_path), body]
    # Files, not pipes: a grandchild that keeps a pipe open cannot keep us waiting.
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            [*argv, *arguments],
            env=dict(host.environ),
            start_new_session=True,
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
        )
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            return Outcome(failure=f"did not finish within {seconds:g} s")
        except BaseException:
            _end(process)  # Ctrl-C does not reach a session of its own
            raise
        reported = [line for line in _tail(stdout) if line.startswith(word)]
        if not reported:
            return Outcome(failure=_ending(code, _tail(stderr)))
    result = json.loads(reported[-1][len(word) :])
    failure = result.get("failure")
    return Outcome(result.get("value"), shortened(failure) if failure else None)


def shortened(text: str) -> str:
    """A long error by both its ends: the cause stands at the one or the other."""
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2
    return f"{text[:half]} ... {text[-half:]}"


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended by itself just now
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _ending(code: int, stderr: list[str]) -> str:
    said = f": {shortened(stderr[-1])}" if stderr else ""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"the process was killed by {name}{said}"
    return f"the process ended itself with exit code {code}{said}"


def _tail(file: IO[bytes]) -> list[str]:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL_BYTES))
    lines = file.read().decode(errors="replace").splitlines()
    return [line.strip() for line in lines if line.strip()]
