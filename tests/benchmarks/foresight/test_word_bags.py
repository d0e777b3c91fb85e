from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.foresight.word_bags import WORD_DIMENSIONS, WordBags

TEXTS = st.lists(st.text(alphabet="ab \ud800", max_size=8), max_size=8)


@given(TEXTS, st.text(alphabet="ab ", max_size=8))
def test_what_was_counted_and_forgotten_leaves_nothing_behind(texts: list[str], forgotten: str) -> None:
    with_it, without = WordBags(), WordBags()
    bag = with_it.bag(forgotten)
    with_it.count(bag)
    for text in texts:
        with_it.count(with_it.bag(text))
    with_it.forget(bag)
    for text in reversed(texts):
        without.count(without.bag(text))
    asked = without.bag("a b ab")
    assert np.allclose(with_it.weighted(asked), without.weighted(asked))


def test_vectors_have_length_one_and_no_text_has_none() -> None:
    bags = WordBags()
    bags.count(bags.bag("one text"))
    for vector in (bags.plain(bags.bag("select name")), bags.weighted(bags.bag("select name"))):
        assert vector.shape == (WORD_DIMENSIONS,)
        assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-6)
    assert not bags.plain(bags.bag("")).any() and not bags.weighted(bags.bag("")).any()
