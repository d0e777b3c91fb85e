"""Count what was seen in each of the last hours or days, and never twice.

A period keeps a sample of the sessions that first saw the thing in it (`fleetlore.stats.bottom_k`), so merging a
session's cumulative figures in commutes and can be repeated. Only the newest periods are kept: whether one of them is
depends on the set of periods alone, and never on the order in which they came.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from fleetlore.stats.bottom_k import CountSample, SessionCounts

Period = tuple[int, int, int]  # number since the Unix epoch, calls, failures


@dataclass(slots=True)
class Timeline:
    """A mergeable series of equal periods of event time.

    Attributes:
        width_seconds: of a period.
        kept: how many periods with a call it keeps, the newest.
        k: how many sessions of a period it keeps; the figures of more are estimates.
    """

    width_seconds: float
    kept: int
    k: int
    samples: dict[int, CountSample] = field(default_factory=dict)

    def add(self, session: int, seen: SessionCounts, time: float) -> bool:
        """Merge one session's figures into the period of `time`; say whether anything changed."""
        return self._add(int(time // self.width_seconds), session, seen)

    def merge(self, other: Timeline) -> bool:
        """Merge another timeline of the same form in; say whether anything changed."""
        changed = False
        for number, sample in other.samples.items():
            for session, seen in sample.kept.items():
                changed |= self._add(number, session, seen)
        return changed

    def _add(self, number: int, session: int, seen: SessionCounts) -> bool:
        sample = self.samples.get(number)
        if sample is None:
            if len(self.samples) >= self.kept:
                oldest = min(self.samples)
                if number < oldest:
                    return False
                del self.samples[oldest]
            sample = self.samples[number] = CountSample(self.k)
        return sample.add(session, seen)

    def discard(self, sessions: Collection[int]) -> bool:
        """Take sessions out as if they had never been; say whether any was there."""
        changed = any([sample.discard(sessions) for sample in self.samples.values()])
        if changed:
            self.samples = {number: sample for number, sample in self.samples.items() if sample.kept}
        return changed

    @property
    def periods(self) -> tuple[Period, ...]:
        """The newest first."""
        figures = [(number, sample.totals) for number, sample in sorted(self.samples.items(), reverse=True)]
        return tuple([(number, seen.calls, seen.failures) for number, seen in figures])

    def seen(self, since: float = 0.0) -> Iterator[SessionCounts]:
        """What the kept sessions saw in the periods that end after `since`."""
        for number, sample in self.samples.items():
            if (number + 1) * self.width_seconds > since:
                yield from sample.kept.values()

    def to_rows(self) -> list[list[int]]:
        """Rows (period, session, agent, calls, failures, ended), sorted: equal timelines give equal rows."""
        return [[number, *row] for number, sample in sorted(self.samples.items()) for row in sample.to_rows()]

    def restore(self, rows: Iterable[list[int]]) -> None:
        """Merge rows in."""
        for number, session, *seen in rows:
            self._add(number, session, SessionCounts(*seen))
