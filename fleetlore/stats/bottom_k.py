"""Counting what sessions saw without ever counting twice: a bottom-k sample of sessions.

A count that is incremented is wrong as soon as a record is processed twice. So a count is kept as a *set* of sessions,
each with its own cumulative figures, and merging takes the union and the maximum: it commutes and repeating it changes
nothing. So that the set stays small, only the `k` sessions with the smallest hashes are kept (a bottom-k or KMV sketch:
Bar-Yossef et al. 2002; Cohen and Kaplan 2007). Below `k` sessions all figures are exact; above, sums are unbiased
estimates with a relative standard error of about 1/sqrt(k - 2). Which sessions are kept depends on the set alone, never
on the order of arrival, and calls and failures come from the same sessions, so that a rate never exceeds 1.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

K = 256
WELL, BADLY = 1, 2
_SPACE = 2**52  # hashes fit a JSON number exactly (an IEEE double has 53 bits)


def stable_hash(text: str) -> int:
    """52-bit hash of a text, equal in every process and on every machine."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 12


class SessionCounts(NamedTuple):
    """What one session saw, cumulative: merging takes the maximum of each figure.

    Attributes:
        ended: how the session ended: 0 not known, 1 well, 2 badly.
    """

    agent: int
    calls: int
    failures: int
    ended: int = 0

    def merge(self, other: SessionCounts) -> SessionCounts:
        return SessionCounts(*map(max, self, other))

    @property
    def failed(self) -> bool:
        return self.ended == BADLY


class SampleTotals(NamedTuple):
    """What all sessions of a sample saw together.

    Attributes:
        agents: exact below `k` sessions, a lower bound above.
        ended, failed: sessions of which it is known how they ended; those that ended badly.
    """

    sessions: int
    agents: int
    calls: int
    failures: int
    ended: int
    failed: int


@dataclass(slots=True)
class BottomK:
    """A mergeable sample of the sessions that saw something.

    Attributes:
        k: how many sessions it keeps at the most.
        seen: by session hash.
    """

    k: int = K
    seen: dict[int, SessionCounts] = field(default_factory=dict)
    # Sorted, of a full sample: so that one that comes too late costs a comparison, and one that is taken in no search of them all.
    _order: list[int] = field(default_factory=list, compare=False)

    def add(self, session: int, seen: SessionCounts) -> bool:
        """Merge one session's figures in; say whether anything changed."""
        old = self.seen.get(session)
        if old is not None:
            new = old.merge(seen)
            if new == old:
                return False
            self.seen[session] = new
            return True
        if len(self.seen) < self.k:
            self.seen[session] = seen
            return True
        order = self._sorted
        if session > order[-1]:
            return False
        del self.seen[order.pop()]
        insort(order, session)
        self.seen[session] = seen
        return True

    def merge(self, other: BottomK) -> bool:
        """Merge another sample in; say whether anything changed."""
        changed = False
        for session, seen in other.seen.items():
            changed |= self.add(session, seen)
        return changed

    @property
    def _scale(self) -> float:
        """How many sessions one kept session stands for: 1 while all are kept."""
        if len(self.seen) < self.k:
            return 1.0
        return (self.k - 1) / (self._sorted[-1] / _SPACE) / self.k

    @property
    def _sorted(self) -> list[int]:
        if len(self._order) != len(self.seen):  # a sample that is not full only grows
            self._order = sorted(self.seen)
        return self._order

    @property
    def figures(self) -> SampleTotals:
        """Of all sessions, in one pass over those that are kept: a busy pattern asks with every write."""
        if not self.seen:
            return SampleTotals(0, 0, 0, 0, 0, 0)
        scale = self._scale
        agents, calls, failures, ended = zip(*self.seen.values(), strict=True)
        return SampleTotals(
            round(len(self.seen) * scale),
            len(set(agents)),
            round(sum(calls) * scale),
            round(sum(failures) * scale),
            round((len(ended) - ended.count(0)) * scale),
            round(ended.count(BADLY) * scale),
        )

    @property
    def warned(self) -> tuple[int, int]:
        """Sessions that did what they were warned of and it is known what came of it, and those where it failed or they did."""
        right = sum(seen.failures > 0 or seen.failed for seen in self.seen.values())
        known = sum(seen.failures > 0 or seen.ended > 0 for seen in self.seen.values())
        return round(known * self._scale), round(right * self._scale)

    def to_rows(self) -> list[list[int]]:
        """Rows (session, agent, calls, failures, ended), sorted: equal samples give equal rows."""
        return [[session, *self.seen[session]] for session in self._sorted]

    @classmethod
    def from_rows(cls, rows: Iterable[list[int]], k: int = K) -> BottomK:
        return cls(k, {session: SessionCounts(*seen) for session, *seen in rows})
