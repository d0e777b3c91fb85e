import hashlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.errors import ModelUnavailable
from fleetlore.recall.encoder import StaticEncoder, installed_encoder, shared_encoder
from tests.rows import for_each

TEXTS = ["git push --force origin main", "permission denied: /etc/passwd", "ok", "größe 数据"]


@for_each("text", "", "   ", "\x00", "\ud800")
def test_a_text_without_meaning_gives_numbers(text: str) -> None:
    row, _ = found = StaticEncoder().encode([text, "ok"])
    assert np.isfinite(found).all() and (text or not row.any())


def test_a_text_gives_the_same_bits_in_any_batch_and_from_the_cache() -> None:
    together, apart = StaticEncoder(), StaticEncoder()
    batch = together.encode(TEXTS)
    assert batch.shape == (4, together.dimensions) and batch.dtype == np.float32
    assert together.encode([]).shape == (0, together.dimensions)
    for row, text in zip(batch, TEXTS, strict=True):
        assert (apart.encode([text])[0] == row).all()
    assert (together.encode(TEXTS[::-1])[::-1] == batch).all()


def test_the_cache_is_bounded() -> None:
    encoder = StaticEncoder()
    encoder.encode([f"text {n}" for n in range(9_000)])
    assert encoder._cached.cache_info().currsize == encoder._cached.cache_info().maxsize == 8_192


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelUnavailable, match=r"fleetlore\[meaning\]"):
        StaticEncoder()


@given(st.text(st.sampled_from("ab1 _.-é数\n[SEP]"), max_size=40) | st.text(max_size=60))
def test_a_text_is_the_sum_of_its_tokens(text: str) -> None:
    encoder = shared_encoder()
    clean = text.encode("utf-8", "replace").decode()
    ids = encoder._tokenizer.encode(clean, add_special_tokens=False).ids
    total = encoder._table[ids].astype(np.float64).sum(axis=0)
    expected = total / (np.linalg.norm(total) or 1.0)
    np.testing.assert_allclose(encoder.encode([text])[0], expected, atol=1e-5)


def test_without_the_extra_no_encoder_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed_encoder() is shared_encoder()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert installed_encoder() is None


def test_the_committed_table_is_the_one_that_the_script_makes() -> None:
    """Its hash stands in the script, and its tokenizer is the model's, so that the license is the model's."""
    folder = Path(__file__).parents[3] / "deploy" / "encoder"
    script = (folder / "make_table.py").read_text()
    for name, constant in (("table.safetensors", "TABLE_SHA256"), ("tokenizer.json", "_TOKENIZER_SHA256")):
        digest = hashlib.sha256((folder / "fleetlore_encoder" / name).read_bytes()).hexdigest()
        assert f'{constant} = "{digest}"' in script
