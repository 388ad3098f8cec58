"""One prepared run on a machine with a GPU: what works there, in a JSON file, within minutes.

    python tests/gpu/check.py --out DIR [--minutes 5]

It needs the project installed (`pip install -e .[cuda] --group test`) and nothing from a network.
Stages: facts (static and import probe), live (every kernel on small tensors), models (each family
attached and not), bench, matrix. Each has a share of the time; what is not reached is said, as is
every kernel that this machine cannot run. Exit code 1 where something failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "attention"), str(ROOT / "runtime")]

Stage = Callable[["Run"], dict[str, Any]]


class Run:
    """The run's clock, its facts, and where it writes."""

    def __init__(self, out: Path, minutes: float) -> None:
        self.out = out
        self.end = time.monotonic() + 60 * minutes
        self.facts: Any = None
        self.report: dict[str, Any] = {}

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.end - time.monotonic()

    def save(self) -> None:
        """Write what is known: a run that is cut off leaves its part."""
        path = self.out / "check.json"
        path.write_text(json.dumps(self.report, indent=2) + "\n", encoding="utf-8")


def facts(run: Run) -> dict[str, Any]:
    """What the machine is, and which packages import."""
    from polyattn import capabilities
    from polyattn.probe import gather
    from polyattn.selector import usable
    from polyattn.vocabulary import ProbeLevel

    run.facts = gather(ProbeLevel.IMPORT)
    (run.out / "facts.json").write_text(run.facts.to_json() + "\n", encoding="utf-8")
    reasons = usable(run.facts)
    return {
        "passed": True,
        "machine": json.loads(run.facts.to_json()),
        "not_tested_here": {name: why for name, why in reasons.items() if why is not None},
        "rows": [row.name for row in capabilities.rows()],
    }


def live(run: Run) -> dict[str, Any]:
    """Every usable kernel on small tensors, each in a process of its own."""
    import dataclasses

    from polyattn.probe.host import Host
    from polyattn.probe.live import with_live_results

    probed = with_live_results(run.facts, Host(os.environ), seconds=60)
    (run.out / "facts.json").write_text(probed.to_json() + "\n", encoding="utf-8")
    return {
        "passed": all(result.failure is None for result in probed.live),
        "results": [dataclasses.asdict(result) for result in probed.live],
    }


def models(run: Run) -> dict[str, Any]:
    """Each family's denoiser, small, on the device: the same bits attached by torch_sdpa."""
    import torch

    from polyattn.integrations.diffusers import attach
    from polyattn.preferences import preferences_from_options
    from tests.small_models import DENOISERS

    class Pipeline:
        def __init__(self, transformer: Any) -> None:
            self.components = {"transformer": transformer}

    def moved(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(moved, value))
        return value.to(device) if isinstance(value, torch.Tensor) else value

    def forward(model: Any, inputs: dict[str, Any]) -> Any:
        with torch.no_grad():
            out = model(**inputs, return_dict=False)
        while not isinstance(out, torch.Tensor):
            out = out[0]
        return out

    device = "cuda" if torch.cuda.is_available() else "cpu"
    preferences = preferences_from_options("torch_sdpa", environ={})
    found: dict[str, str] = {}
    for denoiser in DENOISERS:
        try:
            model = denoiser.build().to(device)
            inputs = {name: moved(value) for name, value in denoiser.inputs().items()}
            expected = forward(model, inputs)
            attachment = attach(Pipeline(model), preferences, run.facts)
            same = torch.equal(forward(model, inputs), expected)
            bypasses = attachment.report().bypasses
            attachment.detach()
            found[denoiser.family] = "same bits" if same and not bypasses else "differs"
        except Exception as error:  # the others still tell something
            found[denoiser.family] = f"{type(error).__name__}: {error}"[:300]
    return {"passed": set(found.values()) == {"same bits"}, "device": device, "families": found}


def bench(run: Run) -> dict[str, Any]:
    """The time and error of every dense kernel at real shapes."""
    from polyattn.timing import SHAPES, default_shapes, measure, usable_at
    from polyattn.vocabulary import PlatformName

    dtype: Any = "float32" if run.facts.platform is PlatformName.CPU else "bfloat16"
    shapes = {shape.name: shape for shape in SHAPES}
    here = run.facts.for_device(run.facts.devices[0].index) if run.facts.devices else run.facts
    results: list[dict[str, Any]] = []
    for name in default_shapes(run.facts.platform):
        reasons = usable_at(shapes[name], dtype, here)
        names = [implementation for implementation, why in reasons.items() if why is None]
        measured = measure(shapes[name], dtype, names, here, seconds=0.5)
        results += [measurement.to_json() for measurement in measured]
    good = all(r["failure"] is None and r["within_tolerance"] for r in results)
    return {"passed": good and bool(results), "results": results}


def matrix(run: Run) -> dict[str, Any]:
    """tests/matrix with what time is left, in an order that spreads over all of it."""
    junit = run.out / "matrix.xml"
    argv = [sys.executable, "-m", "pytest", "-q", "-x", "--maxfail=20", "-p", "no:cacheprovider"]
    argv += ["-n", str(min(4, os.cpu_count() or 1)), f"--junitxml={junit}", "tests/matrix"]
    try:
        done = subprocess.run(
            argv, cwd=ROOT, timeout=max(1.0, run.left - 10), capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        return {"passed": None, "summary": "cut off by the clock"}
    lines = done.stdout.strip().splitlines()
    return {"passed": done.returncode == 0, "summary": lines[-1] if lines else done.stderr[-400:]}


STAGES: Final[tuple[Stage, ...]] = (facts, live, models, bench, matrix)
SECONDS_NEEDED: Final = 20.0  # a stage is not begun with less


def main(words: list[str] | None = None) -> int:
    """Run the stages in order; 1 where one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for check.json")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument(
        "--skip", action="append", default=[], choices=[stage.__name__ for stage in STAGES[1:]]
    )
    arguments = parser.parse_args(words)
    arguments.out.mkdir(parents=True, exist_ok=True)
    run = Run(arguments.out, arguments.minutes)
    for stage in STAGES:
        name, start = stage.__name__, time.monotonic()
        if name in arguments.skip:
            result: dict[str, Any] = {"passed": None, "why": "skipped on request"}
        elif run.left < SECONDS_NEEDED:
            result = {"passed": None, "why": "no time was left"}
        else:
            try:
                result = stage(run)
            except Exception as error:
                result = {"passed": False, "why": f"{type(error).__name__}: {error}"}
        run.report[name] = {**result, "seconds": round(time.monotonic() - start, 1)}
        run.save()
        word = {True: "passed", False: "FAILED", None: "not run"}[result["passed"]]
        sys.stdout.write(f"{name:8} {word:8} {run.report[name]['seconds']:6} s\n")
        sys.stdout.flush()
        if run.facts is None:
            break  # nothing can be judged without facts
    return 1 if any(part["passed"] is False for part in run.report.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
