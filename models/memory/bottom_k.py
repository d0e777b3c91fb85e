"""Count sessions without ever counting one twice: a bottom-k sample of sessions.

A count that is incremented is wrong as soon as a record is processed twice. So a count is kept as a *set* of sessions,
each with its own cumulative value. Merging takes the union, and joins the two values of one session: it commutes, and
repeating it changes nothing. Only the `k` sessions with the smallest hashes are kept (a bottom-k or KMV sketch:
Bar-Yossef et al. 2002; Cohen and Kaplan 2007). Below `k` sessions all figures are exact. Above, sums are unbiased
estimates with a relative standard error of about 1/sqrt(k - 2). Which sessions are kept depends on the set alone.
Calls and failures come from the same sessions, so a rate never exceeds 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Collection, Iterable
from typing import Any, Generic, NamedTuple, Self, TypeVar

from fleetlore.stats.hashing import HASHES, stable_hash

T = TypeVar("T")
Ordered = TypeVar("Ordered", bound=tuple[object, ...])

K = 256
WELL, BADLY = 1, 2


class BottomK(ABC, Generic[T]):
    """A mergeable sample of sessions: a join-semilattice.

    Attributes:
        k: how many sessions are kept at most.
        kept: value by session hash.
    """

    __slots__ = ("_order", "k", "kept")

    def __init__(self, k: int = K, kept: Iterable[tuple[int, T]] = ()) -> None:
        self.k = k
        self.kept: dict[int, T] = dict(kept)
        # Sorted, once the sample is full: a session that is too late costs one comparison, one that is taken no search.
        self._order: list[int] = []

    @staticmethod
    @abstractmethod
    def join(old: T, new: T) -> T:
        """The value that two values of one session make: commutative, associative and idempotent."""

    @abstractmethod
    def nobody(self) -> T:
        """The value that stands where an erased session was: it counts for nothing."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.k == other.k and self.kept == other.kept

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __len__(self) -> int:
        return len(self.kept)

    def add(self, session: int, value: T) -> bool:
        """Merge one session's value in; say whether anything changed."""
        old = self.kept.get(session)
        if old is not None:
            new = self.join(old, value)
            if new == old:
                return False
            self.kept[session] = new
            return True
        if len(self.kept) >= self.k:
            order = self._sorted
            if session > order[-1]:
                return False
            del self.kept[order.pop()]
            insort(order, session)
        self.kept[session] = value
        return True

    def merge(self, other: Self) -> bool:
        """Merge another sample in; say whether anything changed."""
        # A list, because `any` of a generator would stop at the first change.
        return any([self.add(session, value) for session, value in other.kept.items()])

    def discard(self, sessions: Collection[int]) -> bool:
        """Take sessions out as if they had never been; say whether any was there.

        Of a full sample nobody keeps the place, under another hash below the greatest: without that the sample would
        seem to hold all sessions there are, and would count 256 where it stood for thousands.
        """
        gone = [session for session in sessions if session in self.kept]
        if not gone:
            return False
        greatest = self._sorted[-1] if len(self.kept) >= self.k else None
        for session in gone:
            del self.kept[session]
        for session in gone if greatest is not None else ():
            self.kept[stable_hash(f"nobody/{session}") % (greatest or 1)] = self.nobody()
        self._order = sorted(self.kept)
        return True

    @property
    def scale(self) -> float:
        """How many sessions one kept session stands for: 1 while all are kept."""
        if len(self.kept) < self.k:
            return 1.0
        return (self.k - 1) / (self._sorted[-1] / HASHES) / self.k

    def sorted(self) -> list[tuple[int, T]]:
        """Sessions with their values: equal samples give equal lists."""
        return [(session, self.kept[session]) for session in self._sorted]

    @property
    def _sorted(self) -> list[int]:
        if len(self._order) != len(self.kept):  # a sample that is not full only grows
            self._order = sorted(self.kept)
        return self._order


class LatestSample(BottomK[Ordered]):
    """Keeps the greatest of the values of a session: the newest, where they begin with a revision.

    Args:
        void: the value that counts for nothing.
    """

    __slots__ = ("_void",)

    def __init__(self, k: int, void: Ordered, kept: Iterable[tuple[int, Ordered]] = ()) -> None:
        super().__init__(k, kept)
        self._void = void

    def nobody(self) -> Ordered:
        return self._void

    @staticmethod
    def join(old: Ordered, new: Ordered) -> Ordered:
        return max(old, new)


class SessionCounts(NamedTuple):
    """What one session saw, cumulative: joining takes the maximum of each figure.

    Attributes:
        ended: how the session ended: 0 not known, 1 well, 2 badly.
        group: hash of the agent's group; 0 of none.
    """

    agent: int
    calls: int
    failures: int
    ended: int = 0
    group: int = 0

    @property
    def failed(self) -> bool:
        return self.ended == BADLY


NOBODY = SessionCounts(-1, 0, 0)


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


class CountSample(BottomK[SessionCounts]):
    """What sessions saw of one thing: a tool, a call, a failure pattern."""

    __slots__ = ()

    @staticmethod
    def join(old: SessionCounts, new: SessionCounts) -> SessionCounts:
        return SessionCounts(*map(max, old, new))

    def nobody(self) -> SessionCounts:
        return NOBODY

    @property
    def totals(self) -> SampleTotals:
        """Figures of all sessions, in one pass over those that are kept: a busy pattern asks with every write."""
        if not self.kept:
            return SampleTotals(0, 0, 0, 0, 0, 0)
        scale = self.scale
        agents, calls, failures, ended, _ = zip(*self.kept.values(), strict=True)
        nobody = agents.count(NOBODY.agent)
        return SampleTotals(
            round((len(self.kept) - nobody) * scale),
            len(set(agents)) - (nobody > 0),
            round(sum(calls) * scale),
            round(sum(failures) * scale),
            round((len(ended) - ended.count(0)) * scale),
            round(ended.count(BADLY) * scale),
        )

    @property
    def warned(self) -> tuple[int, int]:
        """Sessions with a known end that made a call they were warned of, and those where the warning was right."""
        right = sum(seen.failures > 0 or seen.failed for seen in self.kept.values())
        known = sum(seen.failures > 0 or seen.ended > 0 for seen in self.kept.values())
        return round(known * self.scale), round(right * self.scale)

    def to_rows(self) -> list[list[Any]]:
        """Rows (session, agent, calls, failures, ended, group), sorted: equal samples give equal rows. Without a group
        a row ends before it: a field of the store holds no more.
        """
        return [[session, *(seen if seen.group else seen[:-1])] for session, seen in self.sorted()]

    @classmethod
    def from_rows(cls, rows: Iterable[list[int]], k: int = K) -> CountSample:
        return cls(k, [(session, SessionCounts(*seen)) for session, *seen in rows])
