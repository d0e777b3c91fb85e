"""Find texts similar to a query: cosine of words weighted by rarity (tf-idf, binary tf), exactly."""

from __future__ import annotations

import math
from collections import defaultdict
from sys import intern

from fleetlore.words import words

# The rarest words; a goal may have 2,000 characters.
_MAX_QUERY_WORDS = 64


class TextIndex:
    """Texts by id. A look-up costs the texts that share a word."""

    def __init__(self) -> None:
        # Shared words take a quarter of the memory of sets.
        self._words: dict[str, tuple[str, ...]] = {}
        self._holding: dict[str, set[str]] = defaultdict(set)

    def put(self, id: str, text: str) -> None:
        self._words[id] = kept = tuple(dict.fromkeys(map(intern, words(text))))
        for word in kept:
            self._holding[word].add(id)

    def like(self, query: str, threshold: float, most: int) -> list[tuple[str, float]]:
        """Return at most `most` pairs (id, cosine in 0..1) at or above the threshold, best first, ties by id."""
        if not threshold > 0:
            raise ValueError(f"a threshold is above 0, not {threshold}")
        if not self._words:
            return []
        weights = {word: self._weight(word) for word in set(words(query))}
        asked = sorted(weights, key=lambda word: (-weights[word], word))[:_MAX_QUERY_WORDS]
        total = sum(weights[word] for word in asked)
        shared: dict[str, float] = defaultdict(float)
        for word in asked:
            for id in self._holding.get(word, ()):
                shared[id] += weights[word]
        found = []
        for id, both in shared.items():
            # A shared weight bounds the cosine by sqrt(both / total).
            if both >= threshold * threshold * total:
                length = sum(self._weight(word) for word in self._words[id])
                cosine = min(1.0, both / math.sqrt(total * length))
                if cosine >= threshold:
                    found.append((id, cosine))
        return sorted(found, key=lambda each: (-each[1], each[0]))[:most]

    def shares(self, query: str) -> dict[str, float]:
        """Return the share of the query's word weight that each text holds, 0..1, without zeros."""
        weights = {word: self._weight(word) for word in set(words(query))}
        held: dict[str, float] = defaultdict(float)
        for word, weight in weights.items():
            for id in self._holding.get(word, ()):
                held[id] += weight
        total = sum(weights.values())
        return {id: weight / total for id, weight in held.items()}

    def _weight(self, word: str) -> float:
        """Squared idf, smoothed so that a word in every text counts a little."""
        idf = math.log(1 + len(self._words) / (1 + len(self._holding.get(word, ()))))
        return idf * idf
