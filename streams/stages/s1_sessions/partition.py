"""Keep the sessions of one partition of `events`: open ones, closed ones, and tails whose beginning is missing.

After a restart, a tail's session was closed before the commit. Otherwise its beginning was overtaken or lost. Tails
hold the commit back as open sessions do: they are stored nowhere else.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleetlore.errors import InvalidEvent
from fleetlore.wire.decode import Incoming
from streams.stage.base import DeadLetter, Record
from streams.stages.s1_sessions.open_session import OpenSession
from streams.stages.s1_sessions.parse import letter_of

__all__ = ["Arrival", "Partition", "Waiting"]

# Seconds until the store is asked about what holds a commit back; doubled each time.
FIRST_CHECK_SECONDS = 5.0
LONGEST_CHECK_SECONDS = 60.0
# Closed sessions in memory, by which late events are recognised without the store.
_REMEMBERED_SESSIONS = 2_000

Key = tuple[str, str, int]  # principal, session, part
Waiting = Sequence["tuple[Arrival, DeadLetter]"]


class Arrival(NamedTuple):
    event: Incoming
    key: Key
    record: Record


class _StoreCheck:
    def __init__(self) -> None:
        self._first_offset: int | None = None
        self._pause = 0.0
        self._next = 0.0

    def observe(self, first_offset: int | None, now: float) -> None:
        if first_offset != self._first_offset:
            self._first_offset, self._pause, self._next = first_offset, FIRST_CHECK_SECONDS, now + FIRST_CHECK_SECONDS

    def due(self, now: float) -> bool:
        return self._first_offset is not None and now >= self._next

    def begins(self, first_offset: int | None, now: float) -> bool:
        """Return whether to ask now. The next check is later then."""
        self.observe(first_offset, now)
        if not self.due(now):
            return False
        self._pause = min(2 * self._pause, LONGEST_CHECK_SECONDS)
        self._next = now + self._pause
        return True


@dataclass(slots=True)
class Tail:
    """Events whose session's first has not arrived, each with its dead letter for the case that it never does.

    `arrived`: when the first of them did (`Clock.monotonic`). `size`: bytes, including those of the records.
    """

    first_offset: int
    arrived: float
    last_time: float = 0.0
    size: int = 0
    asked: bool = False
    events: list[tuple[Arrival, DeadLetter]] = field(default_factory=list)

    def add(self, arrival: Arrival) -> int:
        """Return by how many bytes it grows."""
        before = self.size
        if not self.events or self.events[-1][0].record.offset != arrival.record.offset:
            self.size += len(arrival.record.value or b"")
        error = InvalidEvent("missing_start", f"{arrival.event.sequence} came without the first event of its session")
        # Made once: to find the event's bytes means to parse its record again.
        letter = letter_of(arrival.event, arrival.record, error)
        self.size += 3 * len(letter.value) + 1_000
        self.events.append((arrival, letter))
        self.last_time = max(self.last_time, arrival.event.time.timestamp())
        return self.size - before


@dataclass(slots=True)
class Partition:
    """The sessions of one partition.

    `open`: those whose first event has arrived, oldest first. `incomplete`: ended ones that miss events, with their
    last event's arrival. `news`: with a call in this batch that failed or got past a failure. `newest_time`: the
    partition's own clock.
    """

    open: dict[Key, OpenSession] = field(default_factory=dict)
    tails: dict[Key, Tail] = field(default_factory=dict)
    incomplete: dict[Key, float] = field(default_factory=dict)
    closed: OrderedDict[Key, OpenSession] = field(default_factory=OrderedDict)
    news: dict[Key, OpenSession] = field(default_factory=dict)
    redelivery: _StoreCheck = field(default_factory=_StoreCheck)
    unknown: _StoreCheck = field(default_factory=_StoreCheck)
    newest_time: float = 0.0
    swept_time: float = 0.0
    size: int = 0
    tail_size: int = 0

    def find(self, key: Key) -> OpenSession | None:
        return self.open.get(key) or self.closed.get(key)

    @property
    def first_open(self) -> int | None:
        return next((each.first_offset for each in self.open.values()), None)

    @property
    def first_tail(self) -> int | None:
        return next((each.first_offset for each in self.tails.values()), None)

    @property
    def first_offset(self) -> int | None:
        return min((each for each in (self.first_open, self.first_tail) if each is not None), default=None)

    def begin(self, key: Key, session: OpenSession) -> Waiting:
        """Return the events that waited for it."""
        self.open[key] = session
        self.size += session.size
        if (tail := self.tails.get(key)) is None:
            return []
        session.first_offset = min(session.first_offset, tail.first_offset)
        self._sort()
        return self.drop_tail(key)

    def wait(self, arrival: Arrival, now: float) -> None:
        if (tail := self.tails.get(arrival.key)) is None:
            tail = self.tails[arrival.key] = Tail(arrival.record.offset, now)
        self.tail_size += tail.add(arrival)

    def reopen(self, key: Key, offset: int) -> None:
        session = self.closed.pop(key)
        session.first_offset = offset
        self.open[key] = session
        self._sort()

    def _sort(self) -> None:
        self.open = dict(sorted(self.open.items(), key=lambda item: item[1].first_offset))

    def close(self, key: Key, session: OpenSession) -> None:
        self.open.pop(key, None)
        self.incomplete.pop(key, None)
        self.closed[key] = session
        while len(self.closed) > _REMEMBERED_SESSIONS:
            self.forget_closed()

    def restore(self, key: Key, session: OpenSession) -> Waiting:
        self.closed[key] = session
        self.size += session.size
        return self.drop_tail(key)

    def drop_tail(self, key: Key) -> Waiting:
        """Return its events, by sequence."""
        tail = self.tails.pop(key)
        self.tail_size -= tail.size
        return sorted(tail.events, key=lambda each: each[0].event.sequence)

    def forget_closed(self) -> None:
        self.size -= self.closed.popitem(last=False)[1].size

    def forget(self, keys: list[Key]) -> None:
        for key in keys:
            for sessions in (self.open, self.closed):
                if (session := sessions.pop(key, None)) is not None:
                    self.size -= session.size
            self.incomplete.pop(key, None)
