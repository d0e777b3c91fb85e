"""Keep old sessions to rehearse while new ones are learned: without them an adapter forgets."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b

from models.data.dataset import Example

# Least examples of a stratum for an e-fold in weight: a small stratum must not change with every session.
SMALLEST_SPAN = 4


class ReplayBuffer:
    """A sample of the examples of every (tool, outcome), at most `capacity` in all, in which newer ones are likelier.

    Each stratum is a reservoir with forward decay (Cormode, Shkapenyuk, Srivastava and Xu 2009): the weight of an
    example grows e-fold with as many examples of its stratum before it as the stratum holds. So outdated rules fade as
    new sessions come, and a stratum without new examples keeps what it has. A full buffer evicts from the largest
    stratum, and there from the agent with the most examples, so a flood from one agent dominates neither rehearsal nor
    the held-out set. Randomness is the hash of the key: the same examples in the same order give the same buffer,
    however they are batched.
    """

    def __init__(self, capacity: int, seed: int = 0) -> None:
        self.capacity = capacity
        self._salt = str(seed).encode()
        self._strata: dict[tuple[str, bool], dict[str, tuple[float, Example]]] = {}
        self._clocks: dict[tuple[str, bool], float] = defaultdict(float)

    def __len__(self) -> int:
        return sum(len(stratum) for stratum in self._strata.values())

    def add(self, examples: Iterable[Example]) -> None:
        """Offer examples, the oldest first; known ones change nothing."""
        held = len(self)
        for example in examples:
            name = example.stratum
            stratum = self._strata.setdefault(name, {})
            if example.key in stratum:
                continue
            self._clocks[name] += 1 / max(SMALLEST_SPAN, len(stratum))
            stratum[example.key] = math.log(-math.log(self._chance(example.key))) - self._clocks[name], example
            held += 1
            if held > self.capacity:
                largest = self._strata[max((len(kept), each) for each, kept in self._strata.items())[1]]
                del largest[_evicted(largest)]
                held -= 1

    def drop(self, unwanted: Callable[[Example], bool]) -> int:
        """Forget the examples for which `unwanted` is true; returns how many."""
        before = len(self)
        self._strata = {
            name: kept
            for name, stratum in self._strata.items()
            if (kept := {key: ranked for key, ranked in stratum.items() if not unwanted(ranked[1])})
        }
        return before - len(self)

    def draw(self, count: int, seed: int) -> list[Example]:
        """At most `count` different examples, in turn from every stratum: a function of the content and the seed."""
        chance = random.Random(seed)
        piles = []
        for name in sorted(self._strata):
            pile = sorted(self._strata[name])
            chance.shuffle(pile)
            piles.append([self._strata[name][key][1] for key in pile])
        chance.shuffle(piles)
        drawn: list[Example] = []
        depth = 0
        while len(drawn) < count and any(len(pile) > depth for pile in piles):
            drawn.extend(pile[depth] for pile in piles if len(pile) > depth)
            depth += 1
        return drawn[:count]

    def all(self) -> list[Example]:
        """All examples, ordered by key."""
        return sorted((e for stratum in self._strata.values() for _, e in stratum.values()), key=lambda e: e.key)

    def _chance(self, key: str) -> float:
        """Uniform in (0, 1)."""
        digest = blake2b(key.encode(), digest_size=6, key=self._salt).digest()
        return (int.from_bytes(digest) + 0.5) / 2**48


def _evicted(stratum: Mapping[str, tuple[float, Example]]) -> str:
    """Key to evict: of the agents with the most examples, the one of the greatest rank."""
    of_agent = Counter(example.agent for _, example in stratum.values())
    return max((of_agent[example.agent], rank, key) for key, (rank, example) in stratum.items())[2]
