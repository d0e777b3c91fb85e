"""Merge a pattern's sessions by period of event time, and the words in which agents met a failure."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from models.memory.bottom_k import CountSample, SessionCounts

__all__ = ["Period"]

Period = tuple[int, int, int]  # number since the Unix epoch, calls, failures
# Words take up to 2 kB in JSON.
_MOST_AGENTS = 12
# Known sessions with an agent's words, which go once all these are erased.
_WITNESSES = 4

Words = tuple[bool, str, str, str]  # of `models.memory.pattern_state.Subject`


def order_of(words: Words) -> tuple[bool, bool, Words]:
    """Words without a template come last: a stored session knows no other of the calls that it left out."""
    lasting, template, *_ = words
    return lasting, not template, words


@dataclass(slots=True)
class Timeline:
    """A mergeable series of equal periods of event time.

    A period keeps a sample of the sessions that first saw the thing in it. Which periods are kept depends on the set of
    periods alone.

    `kept`: number of newest periods. `room`: sessions that all keep together. `k`: those of one; it never grows,
    because dropped sessions cannot come back.
    """

    width_seconds: float
    kept: int
    room: int
    sample_type: type[CountSample] = CountSample
    k: int = field(init=False)
    samples: dict[int, CountSample] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.k = self.room

    def add(self, session: int, seen: SessionCounts, time: float) -> bool:
        return self._add(int(time // self.width_seconds), session, seen)

    def _add(self, number: int, session: int, seen: SessionCounts) -> bool:
        sample = self.samples.get(number)
        if sample is None:
            if len(self.samples) >= self.kept:
                oldest = min(self.samples)
                if number < oldest:
                    return False
                del self.samples[oldest]
            sample = self.samples[number] = self.sample_type(self.k)
            self._fit(min(self.k, self.room // len(self.samples)))
        return sample.add(session, seen)

    def _fit(self, k: int) -> None:
        if k < self.k:
            self.k = k
            for sample in self.samples.values():
                sample.shrink(k)

    def discard(self, sessions: Collection[int]) -> bool:
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
    def newest(self) -> CountSample:
        """The newest period with several agents, if there is one: one alone could begin a period early."""
        newest_first = [sample for _, sample in sorted(self.samples.items(), reverse=True)]
        return next((each for each in newest_first if each.totals.agents > 1), newest_first[0])

    @property
    def is_estimated(self) -> bool:
        return any(sample.is_full for sample in self.samples.values())

    def seen(self, since: float = 0.0) -> Iterator[SessionCounts]:
        for number, sample in self.samples.items():
            if (number + 1) * self.width_seconds > since:
                yield from sample.seen

    def to_rows(self) -> list[list[int]]:
        """Sorted rows (period, session, agent, calls, failures, ended)."""
        return [[number, *row] for number, sample in sorted(self.samples.items()) for row in sample.to_rows()]

    def restore(self, rows: Iterable[list[int]], k: int) -> None:
        for number, session, *seen in rows:
            self._add(number, session, SessionCounts(*seen))
        self._fit(k)


class Wordings(dict[int, tuple[Words, tuple[int, ...]]]):
    """The smallest words of each agent (hash), with the first sessions (hashes) that had them. The agents with the
    smallest hashes are kept."""

    def note(self, agent: int, session: int, words: Words) -> bool:
        known, witnesses = self.get(agent, (words, ()))
        if order_of(known) < order_of(words) or (known == words and session in witnesses):
            return False
        if not witnesses and len(self) >= _MOST_AGENTS:
            if agent > (largest := max(self)):
                return False
            del self[largest]
        merged = tuple(sorted((*witnesses, session))[:_WITNESSES]) if known == words else (session,)
        self[agent] = words, merged
        return known != words or merged != witnesses

    @property
    def of_most(self) -> Words | None:
        """The words of most agents, on a tie the smallest."""
        counts = Counter(words for words, _ in self.values())
        return min(counts, key=lambda each: (-counts[each], order_of(each)), default=None)

    def others(self, words: Words) -> int:
        return sum(each != words for each, _ in self.values())

    @property
    def sessions(self) -> set[int]:
        return {session for _, witnesses in self.values() for session in witnesses}

    def sessions_of(self, agents: Collection[int]) -> set[int]:
        return {session for agent in agents for session in self.get(agent, ((), ()))[1]}

    def discard(self, sessions: Collection[int]) -> bool:
        if not (gone := self.sessions.intersection(sessions)):
            return False
        for agent, (words, witnesses) in list(self.items()):
            if left := tuple(each for each in witnesses if each not in gone):
                self[agent] = words, left
            else:
                del self[agent]
        return True

    def to_rows(self) -> list[list[Any]]:
        """Sorted rows (words, pairs of agent and sessions)."""
        agents = defaultdict[Words, list[tuple[int, tuple[int, ...]]]](list)
        for agent, (words, witnesses) in sorted(self.items()):
            agents[words].append((agent, witnesses))
        return [[*words, pairs] for words, pairs in sorted(agents.items())]

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[Any]]) -> Self:
        return cls(
            (agent, ((lasting, *rest), tuple(sessions))) for lasting, *rest, pairs in rows for agent, sessions in pairs
        )
