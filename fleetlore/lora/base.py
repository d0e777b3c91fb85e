"""Name a language model by what it is: the hash of its weights and the shapes of its tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fleetlore.errors import AdapterRefused, ConfigError
from fleetlore.lora.tensors import read_header

_BLOCK = 1 << 20
_HEAD = 16 * 1024 * 1024


class Base(NamedTuple):
    """A language model.

    Attributes:
        sha256: of its weights: of the one file, or of the lines `SHA256  NAME` of several in the order of their names.
        shapes: of its tensors, by name.
    """

    sha256: str
    shapes: Mapping[str, tuple[int, ...]]


def base_of(folder: Path) -> Base:
    """Read a model's `*.safetensors`.

    Raises:
        ConfigError: the folder holds none, or one is damaged.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ConfigError(f"{folder} holds no *.safetensors: give the folder of the language model")
    shapes: dict[str, tuple[int, ...]] = {}
    hashes: list[tuple[str, str]] = []
    for file in files:
        try:
            shapes |= _shapes(file)
            hashes.append((_sha256(file), file.name))
        except (AdapterRefused, KeyError, TypeError) as error:
            raise ConfigError(f"{file} is damaged: {error}") from None
        except OSError as error:
            raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    if len(hashes) == 1:
        return Base(hashes[0][0], shapes)
    listed = "".join(f"{sha256}  {name}\n" for sha256, name in hashes)
    return Base(hashlib.sha256(listed.encode()).hexdigest(), shapes)


def _shapes(file: Path) -> dict[str, tuple[int, ...]]:
    with file.open("rb") as opened:
        header, _ = read_header(opened.read(_HEAD))
    return {name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while block := opened.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
