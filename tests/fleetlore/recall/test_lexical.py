from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetlore.recall.lexical import rank, words


def test_names_are_found_by_their_parts() -> None:
    assert words("Table 'car_1.carsData' doesn't exist") == ["table", "car", "1", "cars", "data", "doesn", "t", "exist"]


def test_a_rare_word_outweighs_common_ones() -> None:
    texts = ["error error error in sql", "error in the orchestra table", "error in python"]
    assert next(place for place, _ in rank("orchestra error", texts)) == 1
    assert rank("nothing like it", ["sql error"]) == []
    assert rank("sql", []) == []


def test_of_equal_texts_the_first_comes_first() -> None:
    assert [place for place, _ in rank("a", ["a b", "c", "a b"])] == [0, 2]


@given(st.text(max_size=20), st.lists(st.text(max_size=30), max_size=6))
def test_only_texts_that_share_a_word_are_ranked(query: str, texts: list[str]) -> None:
    ranked = rank(query, texts)
    assert {place for place, _ in ranked} == {n for n, text in enumerate(texts) if set(words(query)) & set(words(text))}
    assert all(score > 0 for _, score in ranked)
