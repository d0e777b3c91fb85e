import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.recall.search import TextIndex
from fleetlore.words import words

texts = st.lists(
    st.sampled_from(["refund", "order", "cancel", "flight", "table", "cars", "count", "id", "the", "of"]), max_size=6
).map(" ".join)


def cosine(query: str, text: str, everything: list[str]) -> float:
    """By definition, from scratch."""
    bags = [set(words(each)) for each in everything]

    def weight(word: str) -> float:
        return math.log(1 + len(bags) / (1 + sum(word in bag for bag in bags))) ** 2

    one, other = set(words(query)), set(words(text))
    lengths = sum(map(weight, one)) * sum(map(weight, other))
    return sum(map(weight, one & other)) / math.sqrt(lengths) if lengths else 0.0


@given(st.dictionaries(st.integers(0, 9).map(str), texts), texts, st.floats(0.05, 1.0))
def test_exactly_those_above_the_threshold_are_found_best_first(
    known: dict[str, str], query: str, threshold: float
) -> None:
    index = TextIndex()
    for id, text in known.items():
        index.put(id, text)
    truth = {id: cosine(query, text, list(known.values())) for id, text in known.items()}
    found = index.like(query, threshold, 99)
    assert {id for id, _ in found} <= {id for id, value in truth.items() if value > threshold - 1e-9}
    assert {id for id, _ in found} >= {id for id, value in truth.items() if value > threshold + 1e-9}
    assert all(value == pytest.approx(truth[id]) for id, value in found)
    assert found == sorted(found, key=lambda each: (-each[1], each[0]))


def test_a_text_holds_its_share_of_what_the_query_s_words_weigh() -> None:
    index = TextIndex()
    index.put("cars", "no such table cars")
    index.put("user", "no such user")
    shares = index.shares("table cars")
    assert shares == {"cars": pytest.approx(1.0)}
    assert 0 < index.shares("no bananas")["user"] < 0.5, "a word that no text holds weighs most"
    assert index.shares("") == {}
