"""Ranking short texts by the words they share with a query: BM25 (Robertson and Zaragoza 2009), no index, no model."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

_K1 = 1.2
_B = 0.75
_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """Words in lower case; `cars_data` and `carsData` are found by either of their parts."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return [word.casefold() for word in _WORD.findall(apart)]


def rank(query: str, texts: Sequence[str]) -> list[tuple[int, float]]:
    """Pairs (place in `texts`, score) of the texts that share a word with the query, best first, ties by place."""
    wanted = set(words(query))
    bags = [Counter(words(text)) for text in texts]
    lengths = [bag.total() for bag in bags]
    mean = sum(lengths) / len(lengths) if lengths else 0.0
    holding = {word: sum(word in bag for bag in bags) for word in wanted}
    scored = []
    for place, (bag, length) in enumerate(zip(bags, lengths, strict=True)):
        score = 0.0
        for word in wanted & bag.keys():
            weight = math.log(1 + (len(bags) - holding[word] + 0.5) / (holding[word] + 0.5))
            score += weight * bag[word] * (_K1 + 1) / (bag[word] + _K1 * (1 - _B + _B * length / mean))
        if score:
            scored.append((place, score))
    return sorted(scored, key=lambda each: (-each[1], each[0]))
