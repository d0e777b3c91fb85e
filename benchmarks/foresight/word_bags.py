"""Compare texts as bags of hashed words, in which rare words count for more: what two texts are about, where meaning
blurs names.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from fleetlore.stats.text_index import words

__all__ = ["WORD_DIMENSIONS", "Bag", "WordBags"]

WORD_DIMENSIONS = 768
_PLACES = (
    2**18
)  # of how many texts hold a word: wide, because a rare word that meets a common one would count as common


class Bag(NamedTuple):
    """The distinct words of a text, hashed, and how often each occurs."""

    hashes: npt.NDArray[np.int64]
    counts: npt.NDArray[np.float32]


class WordBags:
    """Knows in how many texts each word occurs; that depends on the set of texts alone."""

    def __init__(self) -> None:
        self._holding = np.zeros(_PLACES, np.int64)
        self._texts = 0

    def bag(self, text: str) -> Bag:
        found = Counter(crc32(word.encode("utf-8", "surrogatepass")) for word in words(text))
        return Bag(np.fromiter(found, np.int64, len(found)), np.fromiter(found.values(), np.float32, len(found)))

    def count(self, bag: Bag) -> None:
        """One text more."""
        np.add.at(self._holding, bag.hashes % _PLACES, 1)
        self._texts += 1

    def forget(self, bag: Bag) -> None:
        """One text less."""
        np.subtract.at(self._holding, bag.hashes % _PLACES, 1)
        self._texts -= 1

    def plain(self, bag: Bag) -> npt.NDArray[np.float32]:
        """All words alike: (768,), of length 1. For what is kept, as rarity changes with every text."""
        return _vector(bag, np.sqrt(bag.counts))

    def weighted(self, bag: Bag) -> npt.NDArray[np.float32]:
        """Rare words above all (inverse document frequency): (768,), of length 1. For what is asked."""
        rarity = np.log1p(self._texts / (1 + self._holding[bag.hashes % _PLACES])).astype(np.float32)
        return _vector(bag, np.sqrt(bag.counts) * rarity**2)


def _vector(bag: Bag, weights: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Signed hashing (Weinberger et al. 2009): words that meet in a place cancel out on average."""
    vector = np.zeros(WORD_DIMENSIONS, np.float32)
    np.add.at(vector, bag.hashes % WORD_DIMENSIONS, np.where(bag.hashes >> 20 & 1, weights, -weights))
    vector /= np.maximum(np.linalg.norm(vector), np.float32(1e-9))
    return vector
