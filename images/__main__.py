"""`python -m images build|probe|test|lock|compose`: what the nox sessions run."""

from __future__ import annotations

import argparse
import logging
import sys

from images import bake, compose, lock, platforms, promises, suites, wheels
from images.engine import DockerEngine
from images.errors import ImagesError


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m images", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)

    build = commands.add_parser("build", help="build an image")
    build.add_argument("variant")
    build.add_argument("--fresh", action="store_true", help="use no cached layer")

    probe = commands.add_parser("probe", help="what an image is, and whether it keeps its promises")
    probe.add_argument("variant")

    test = commands.add_parser("test", help="tests/matrix inside the image, tests/images around it")
    test.add_argument("variant")
    test.add_argument("pytest", nargs="*", help="arguments for both pytest runs, after --")

    commands.add_parser("lock", help="resolve images/locks/ anew")

    written = commands.add_parser("compose", help="write compose.yaml")
    written.add_argument("--check", action="store_true", help="only say whether it is current")
    return top


def run(options: argparse.Namespace) -> int:
    found = platforms.load()
    if options.command == "lock":
        for resolution in lock.resolutions(found):
            lock.resolve(resolution)
        return 0
    if options.command == "compose":
        compose.write(found, check=options.check)
        return 0
    variant = found.variant(options.variant)
    if options.command == "build":
        DockerEngine()
        bake.require_buildx()
        wheels.provide(variant)
        bake.build(variant, fresh=options.fresh)
        return 0
    if options.command == "probe":
        print(promises.probe(variant, DockerEngine()))
        return 0
    return suites.run(variant, DockerEngine(), tuple(options.pytest))


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="images: %(message)s")
    try:
        return run(parser().parse_args())
    except ImagesError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
