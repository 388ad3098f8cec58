"""`ditport bench`: how fast each attention backend is here, and how far from the definition."""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import TYPE_CHECKING, Final

from ditport.errors import UnknownOption, UsageError
from polyattn.probe import static_facts

if TYPE_CHECKING:
    from polyattn.timing import Measurement, Shape
    from polyattn.vocabulary import DType

DTYPES: Final = ("bfloat16", "float16", "float32")
HEAD: Final = (
    "shape",
    "implementation",
    "result",
    "ms",
    "TFLOP/s",
    "of peak",
    "error",
    "within",
    "MiB",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--shape",
        action="append",
        metavar="SHAPE",
        help="a model's attention, such as flux-1024, or BATCHxQUERIESxKEYSxHEADSxHEAD_DIM; may "
        "be repeated (default: some that this machine measures quickly)",
    )
    parser.add_argument(
        "--implementation",
        action="append",
        metavar="NAME",
        help="measure this one only; may be repeated (default: every dense one that runs here)",
    )
    parser.add_argument("--dtype", choices=DTYPES, help="default: bfloat16, on CPUs float32")
    parser.add_argument(
        "--seconds",
        type=float,
        default=2.0,
        help="time to spend on each implementation at each shape (default: 2)",
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(args: argparse.Namespace) -> int:
    """Measure, print, and return 0; 1 where an implementation failed or was not accurate."""
    facts = static_facts()
    from polyattn.timing import default_shapes, measure, usable_at
    from polyattn.vocabulary import PlatformName

    cpu = facts.platform is PlatformName.CPU
    dtype: DType = args.dtype or ("float32" if cpu else "bfloat16")
    shapes = [_shape(words) for words in args.shape or default_shapes(facts.platform)]
    results: list[Measurement] = []
    left_out: dict[str, str] = {}
    for shape in shapes:
        served = usable_at(shape, dtype, facts)
        for name in args.implementation or ():
            if name not in served:
                raise UnknownOption("implementation", name, served)
            if served[name] is not None:
                raise UsageError(f"{name} cannot be measured at {shape.name}.", str(served[name]))
        wanted = args.implementation or [n for n, reason in served.items() if reason is None]
        left_out.update({f"{n} at {shape.name}": why for n, why in served.items() if why})
        results += measure(shape, dtype, wanted, facts, args.seconds)
    if args.json:
        data = {
            "facts": json.loads(facts.to_json()),
            "measurements": [result.to_json() for result in results],
            "left_out": left_out,
        }
        sys.stdout.write(json.dumps(data, indent=2) + "\n")
    else:
        sys.stdout.write(table(results) + "\n")
    good = all(result.failure is None and result.within_tolerance for result in results)
    return 0 if good and results else 1


def _shape(words: str) -> Shape:
    from polyattn.timing import SHAPES, Shape

    named = {shape.name: shape for shape in SHAPES}
    if words in named:
        return named[words]
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){4}", words):
        raise UnknownOption("shape", words, (*named, "BATCHxQUERIESxKEYSxHEADSxHEAD_DIM"))
    return Shape(words, *map(int, words.split("x")))


def table(results: list[Measurement]) -> str:
    """The measurements as aligned text."""
    lines = [HEAD, *map(_cells, results)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cells(result: Measurement) -> tuple[str, ...]:
    first = (result.shape, result.implementation, result.fidelity)
    if result.failure is not None or result.seconds is None:
        return (*first, f"failed: {result.failure}", "", "", "", "", "")
    return (
        *first,
        f"{result.seconds * 1e3:.3f}",
        f"{result.teraflops:.3f}",
        "" if result.share_of_peak is None else f"{result.share_of_peak:.0%}",
        f"{result.error:.1e}",
        "yes" if result.within_tolerance else "NO",
        "" if result.peak_bytes is None else f"{result.peak_bytes / 2**20:.0f}",
    )
