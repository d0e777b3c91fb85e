"""Rank texts by what a query shares with them: words, weighted by rarity, and a learned cosine beside them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fleetlore.retrieval.adapter import RetrievalAdapter
from fleetlore.retrieval.encoder import Encoder
from fleetlore.stats.text_index import TextIndex

__all__ = ["Ranking", "answer_text", "query_text"]

# Of the learned cosine, where the likest text by words counts 1.
LEARNED_WEIGHT = 2.0
# Any shared word counts.
_ANY = 1e-6
_ERROR_CHARACTERS = 250
_CALL_CHARACTERS = 400
_FIX_CHARACTERS = 400
_GOAL_CHARACTERS = 150


# Make the two texts that are compared when ways out are ranked: of a call that failed, and of what got past one.
def query_text(error: str, call: str, goal: str) -> str:
    """Of a call that failed, with what its session is after."""
    return f"{error[:_ERROR_CHARACTERS]} {call[:_CALL_CHARACTERS]} {goal[:_GOAL_CHARACTERS]}"


def answer_text(error: str, call: str, fix: str) -> str:
    """Of a call that failed and the one that worked after it."""
    return f"{error[:_ERROR_CHARACTERS]} {call[:_CALL_CHARACTERS]} {fix[:_FIX_CHARACTERS]}"


Floats = npt.NDArray[np.float64]


class Ranking:
    """Texts of ways out that can be ranked for one query after another."""

    def __init__(self, texts: Sequence[str], encoder: Encoder) -> None:
        self._encoder = encoder
        self._count = len(texts)
        self._vectors = encoder.encode(texts)
        self._index = TextIndex()
        for place, text in enumerate(texts):
            self._index.put(str(place), text)

    def by_words(self, query: str) -> Floats:
        """Tf-idf cosine of each text, relative to the likest: (n,), 0..1."""
        found = np.zeros(self._count)
        like = self._index.like(query, _ANY, self._count) if self._count else []
        for id, cosine in like:
            found[int(id)] = cosine / like[0][1]
        return found

    def scores(self, query: str, adapter: RetrievalAdapter) -> Floats:
        """By words and by the adapter together: (n,), the greater the better."""
        return self.by_words(query) + LEARNED_WEIGHT * adapter.cosines(self._encoder.encode([query])[0], self._vectors)
