"""Count sessions by period of event time: samples of equal periods, the newest of which are kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from models.memory.bottom_k import CountSample, SessionCounts

__all__ = ["Period", "Timeline"]

Period = tuple[int, int, int]  # number since the Unix epoch, calls, failures


@dataclass(slots=True)
class Timeline:
    """A mergeable series of equal periods of event time.

    A period keeps a sample of the sessions that first saw the thing in it, so merging cumulative figures in commutes
    and can be repeated. Which periods are kept depends on the set of periods alone, never on their order. All have
    equal room, so that a young timeline counts exactly what an old one has to estimate.

    Attributes:
        width_seconds: length of a period.
        kept: number of periods with a call that it keeps, the newest ones.
        room: number of sessions that all periods keep together.
        k: number of them that one period keeps. It falls as periods are added and never grows, because dropped
            sessions cannot come back.
    """

    width_seconds: float
    kept: int
    room: int
    k: int = field(init=False)
    samples: dict[int, CountSample] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.k = self.room

    def add(self, session: int, seen: SessionCounts, time: float) -> bool:
        """Merge one session's figures into the period of `time`; say whether anything changed."""
        return self._add(int(time // self.width_seconds), session, seen)

    def _add(self, number: int, session: int, seen: SessionCounts) -> bool:
        sample = self.samples.get(number)
        if sample is None:
            if len(self.samples) >= self.kept:
                oldest = min(self.samples)
                if number < oldest:
                    return False
                del self.samples[oldest]
            sample = self.samples[number] = CountSample(self.k)
            self._fit(min(self.k, self.room // len(self.samples)))
        return sample.add(session, seen)

    def _fit(self, k: int) -> None:
        if k < self.k:
            self.k = k
            for sample in self.samples.values():
                sample.shrink(k)

    def discard(self, sessions: Collection[int]) -> bool:
        """Take sessions out as if they had never been; say whether any was there."""
        changed = any([sample.discard(sessions) for sample in self.samples.values()])
        if changed:
            self.samples = {number: sample for number, sample in self.samples.items() if sample.kept}
        return changed

    @property
    def periods(self) -> tuple[Period, ...]:
        """The newest first."""
        newest_first = sorted(self.samples.items(), reverse=True)
        return tuple([(number, *sample.calls_and_failures) for number, sample in newest_first])

    @property
    def is_estimated(self) -> bool:
        """Whether figures of any period are estimates."""
        return any(sample.is_full for sample in self.samples.values())

    def seen(self, since: float = 0.0) -> Iterator[SessionCounts]:
        """The counts of the kept sessions in the periods that end after `since`."""
        for number, sample in self.samples.items():
            if (number + 1) * self.width_seconds > since:
                yield from sample.seen

    def to_rows(self) -> list[list[int]]:
        """Rows (period, session, agent, calls, failures, ended), sorted: equal timelines give equal rows."""
        return [[number, *row] for number, sample in sorted(self.samples.items()) for row in sample.to_rows()]

    def restore(self, rows: Iterable[list[int]], k: int) -> None:
        """Merge the rows of a timeline with that `k` in."""
        for number, session, *seen in rows:
            self._add(number, session, SessionCounts(*seen))
        self._fit(k)
