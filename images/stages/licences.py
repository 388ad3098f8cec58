"""List the licences of everything in the image that others wrote.

    licences.py ENVIRONMENT

Writes licences.json and licences.txt there: Python distributions by their
metadata, the libraries bundled inside wheels, and the base's Debian packages.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Final

# Wheels repaired by auditwheel carry libraries that their metadata does not name. The
# FFmpeg of `av` is built with x264 and x265, so those files together are under the GPL.
BUNDLED: Final = {
    "libSvtAv1Enc": "BSD-3-Clause-Clear",
    "libXau": "MIT-open-group",
    "libasound": "LGPL-2.1-or-later",
    "libav": "GPL-3.0-or-later",
    "libbrotli": "MIT",
    "libdav1d": "BSD-2-Clause",
    "libdrm": "MIT",
    "libfreetype": "FTL OR GPL-2.0-only",
    "libgfortran": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libgomp": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libgmp": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libgnutls": "LGPL-2.1-or-later",
    "libharfbuzz": "MIT-Modern-Variant",
    "libhogweed": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libjpeg": "IJG AND BSD-3-Clause",
    "liblcms2": "MIT",
    "liblzma": "0BSD",
    "libmp3lame": "LGPL-2.0-or-later",
    "libnettle": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libopencore": "Apache-2.0",
    "libopenjp2": "BSD-2-Clause",
    "libopus": "BSD-3-Clause",
    "libpng": "libpng-2.0",
    "libquadmath": "LGPL-2.1-or-later",
    "libscipy_openblas": "BSD-3-Clause",
    "libsharpyuv": "BSD-3-Clause",
    "libsw": "GPL-3.0-or-later",
    "libtiff": "libtiff",
    "libunistring": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libvpl": "MIT",
    "libvpx": "BSD-3-Clause",
    "libwebp": "BSD-3-Clause",
    "libx264": "GPL-2.0-or-later",
    "libx265": "GPL-2.0-or-later",
    "libxcb": "MIT",
    "libzstd": "BSD-3-Clause",
    "libz": "Zlib",
}


HEAD: Final = """\
Works by others in this image: kind, name, version, licence.
A wheel's licence does not cover the libraries bundled in it; those have rows of their own. The
FFmpeg in av is built with x264 and x265 and is under the GPL, as is any image that holds it.
"""


@dataclass(frozen=True)
class Part:
    """One work that the image holds."""

    kind: str
    name: str
    version: str
    licence: str
    texts: tuple[str, ...] = ()


def licence_of(distribution: Distribution) -> str:
    metadata = distribution.metadata
    if "License-Expression" in metadata:
        return metadata["License-Expression"]
    classifiers = [
        each.rpartition(" :: ")[2]
        for each in metadata.get_all("Classifier") or ()
        if each.startswith("License ::")
    ]
    if classifiers:
        return " AND ".join(classifiers)
    # Some put the whole text here; the first line names it.
    text = metadata["License"].strip() if "License" in metadata else ""
    return text.splitlines()[0] if text else "see its texts"


def python_parts(site: Path) -> Iterator[Part]:
    for distribution in distributions(path=[str(site)]):
        texts = tuple(
            sorted(
                str(distribution.locate_file(path))
                for path in distribution.files or ()
                if re.search(r"(?i)(licen[cs]e|copying|notice)", path.name)
                and ".dist-info" in str(path)
                and path.suffix != ".pyc"
            )
        )
        yield Part(
            "python",
            distribution.metadata["Name"],
            distribution.version,
            licence_of(distribution),
            texts,
        )


def bundled_licence(file: str) -> str:
    longest = max((name for name in BUNDLED if file.startswith(name)), key=len, default=None)
    return BUNDLED[longest] if longest else "unknown"


def bundled_parts(site: Path) -> Iterator[Part]:
    for path in sorted(site.glob("*.libs/*.so*")):
        name, _, rest = path.name.partition("-")
        version = rest.partition(".so.")[2] or "-"
        owner = path.parent.name.removesuffix(".libs")
        yield Part(f"bundled in {owner}", name, version, bundled_licence(path.name))


def debian_parts() -> Iterator[Part]:
    command = ["dpkg-query", "--show", "--showformat", "${Package}\t${Version}\n"]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for line in listing.splitlines():
        name, version = line.split("\t")
        text = Path("/usr/share/doc") / name / "copyright"
        texts = (str(text),) if text.is_file() else ()
        yield Part("debian", name, version, "see Debian's copyright file", texts)


def table(parts: list[Part]) -> str:
    lines = [f"{part.kind}\t{part.name}\t{part.version}\t{part.licence}" for part in parts]
    return "\n".join([HEAD, *lines, ""])


def main(environment: Path) -> None:
    (site,) = environment.glob("lib/python*/site-packages")
    parts = sorted(
        [*python_parts(site), *bundled_parts(site), *debian_parts()],
        key=lambda part: (part.kind, part.name.lower()),
    )
    content = json.dumps([asdict(part) for part in parts], indent=1)
    (environment / "licences.json").write_text(content + "\n", encoding="utf-8")
    (environment / "licences.txt").write_text(table(parts), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
