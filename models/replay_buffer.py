"""Old sessions to rehearse while new ones are learned: without them an adapter forgets what it knew."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from hashlib import blake2b

from models.episodes import Episode

SMALLEST_SHARE = 4


class ReplayBuffer:
    """A uniform sample of the episodes of every (tool, outcome), at most `capacity` in all.

    Each stratum keeps the episodes with the smallest hash of their key (a bottom-k sample), so what the buffer holds is
    a function of the set of episodes it was given: not of their order, nor of how often one came. A stratum's share
    only ever shrinks as strata appear, so nothing that belongs to the final sample can have been dropped on the way.
    """

    def __init__(self, capacity: int, seed: int = 0) -> None:
        self.capacity = capacity
        self._salt = str(seed).encode()
        self._strata: dict[tuple[str, bool], dict[str, Episode]] = {}

    def __len__(self) -> int:
        return sum(len(stratum) for stratum in self._strata.values())

    def add(self, episodes: Iterable[Episode]) -> None:
        """Offer episodes; one that is already there changes nothing."""
        for episode in episodes:
            self._strata.setdefault(episode.stratum, {})[self._rank(episode.key)] = episode
        share = max(SMALLEST_SHARE, self.capacity // max(1, len(self._strata)))
        for name, stratum in self._strata.items():
            if len(stratum) > share:
                self._strata[name] = {rank: stratum[rank] for rank in sorted(stratum)[:share]}

    def drop(self, unwanted: Callable[[Episode], bool]) -> int:
        """Forget the episodes of which `unwanted` is true; returns how many."""
        before = len(self)
        self._strata = {
            name: kept
            for name, stratum in self._strata.items()
            if (kept := {rank: episode for rank, episode in stratum.items() if not unwanted(episode)})
        }
        return before - len(self)

    def draw(self, count: int, seed: int) -> list[Episode]:
        """At most `count` different episodes, taken in turn from every stratum: a function of the content and the seed."""
        chance = random.Random(seed)
        piles = []
        for name in sorted(self._strata):
            pile = sorted(self._strata[name])
            chance.shuffle(pile)
            piles.append([self._strata[name][rank] for rank in pile])
        chance.shuffle(piles)
        drawn: list[Episode] = []
        depth = 0
        while len(drawn) < count and any(len(pile) > depth for pile in piles):
            drawn.extend(pile[depth] for pile in piles if len(pile) > depth)
            depth += 1
        return drawn[:count]

    def all(self) -> list[Episode]:
        """Everything it holds, ordered by key."""
        return sorted((e for stratum in self._strata.values() for e in stratum.values()), key=lambda e: e.key)

    def _rank(self, key: str) -> str:
        return blake2b(key.encode(), digest_size=12, key=self._salt).hexdigest()
