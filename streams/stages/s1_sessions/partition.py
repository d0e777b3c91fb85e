"""Assemble the sessions of one partition of `events`: open ones, closed ones, and tails whose beginning is missing.

After a restart, a tail's session was closed before the commit. Otherwise its beginning was overtaken or lost. Tails
hold the commit back as open sessions do: they are stored nowhere else.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from fleetlore.clock import Clock
from fleetlore.errors import InvalidEvent
from fleetlore.wire.principals import principal_of
from fleetlore.wire.trajectory import Trajectory
from sinks.metrics import Metrics
from streams.stage.base import DeadLetter, Effects, Outgoing
from streams.stage.operators import Erased
from streams.stages.s1_sessions.open_session import PART_EVENTS, OpenSession
from streams.stages.s1_sessions.parse import Arrival

__all__ = ["Partition"]

# Seconds until the store is asked about what holds a commit back; doubled each time.
FIRST_CHECK_SECONDS = 5.0
LONGEST_CHECK_SECONDS = 60.0
# Beyond, a session is closed as continued: this bounds what a restart reads again.
MAX_OPEN_RECORDS = 100_000
# Kafka's default batch limit is 1 MiB; a long session may have six times that.
_MAX_TRAJECTORY_BYTES = 900_000
# A tail's least wait for its session's judgment: after an outage, event time runs ahead.
TAIL_SECONDS = 60.0
# Oldest sessions, and tails, that one query covers.
_MOST_CHECKED = 256
# Closed sessions in memory, by which late events are recognised without the store.
_REMEMBERED_SESSIONS = 2_000

Key = tuple[str, str, int]  # principal, session, part


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
        letter = arrival.letter(error)
        self.size += 3 * len(letter.value) + 1_000
        self.events.append((arrival, letter))
        self.last_time = max(self.last_time, arrival.event.time.timestamp())
        return self.size - before


@dataclass(slots=True)
class Partition:
    """`open`: those whose first event has arrived, oldest first. `incomplete`: ended ones that miss events, with their
    last event's arrival. `news`: with a call in this batch that failed or got past a failure. `newest_time`: the
    partition's own clock.
    """

    tenant: str
    silent_seconds: float
    clock: Clock
    metrics: Metrics
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

    @property
    def first_open(self) -> int | None:
        return next((each.first_offset for each in self.open.values()), None)

    @property
    def first_tail(self) -> int | None:
        return next((each.first_offset for each in self.tails.values()), None)

    @property
    def first_offset(self) -> int | None:
        return min((each for each in (self.first_open, self.first_tail) if each is not None), default=None)

    def receive(self, arrival: Arrival, effects: Effects) -> None:
        event = arrival.event
        key, time = (principal_of(event.agent), event.session, event.sequence // PART_EVENTS), event.time.timestamp()
        if time > self.newest_time:
            self.newest_time = time
        if time > effects.newest:
            effects.newest = time
        if time < effects.oldest:
            effects.oldest = time
        if (session := self.open.get(key) or self.closed.get(key)) is not None:
            self._add(arrival, key, session, effects)
        elif event.sequence % PART_EVENTS:
            if (tail := self.tails.get(key)) is None:
                tail = self.tails[key] = Tail(arrival.record.offset, self.clock.monotonic())
            self.tail_size += tail.add(arrival)
        else:
            self._begin(arrival, key, effects)

    def _begin(self, arrival: Arrival, key: Key, effects: Effects) -> None:
        event, record = arrival
        session = self.open[key] = OpenSession(self.tenant, event.session, event.agent, key[2], record.offset)
        self.size += session.size
        if (tail := self.tails.get(key)) is not None:
            session.first_offset = min(session.first_offset, tail.first_offset)
            self._sort()
        try:
            self._add(arrival, key, session, effects)
        finally:
            if tail is not None:
                self._add_tail(key, session, effects)

    def _add(self, arrival: Arrival, key: Key, session: OpenSession, effects: Effects) -> None:
        before = session.size
        if not session.accept(arrival):
            self.metrics.duplicate_events.inc()
            return
        self.size += session.size - before
        data = arrival.event.data
        if data.advice:
            self.metrics.advised_calls.labels("given").inc()
        if data.withheld:
            self.metrics.advised_calls.labels("withheld").inc()
        if session.has_new_failure or session.has_way_out:
            self.news[key] = session
        if key in self.closed:
            self.metrics.reopened_sessions.inc()
            session.first_offset = arrival.record.offset
            self.open[key] = self.closed.pop(key)
            self._sort()
        if session.complete:
            self._close(key, session, effects)
        elif session.ending is not None:
            self.incomplete[key] = self.clock.monotonic()

    def _add_tail(self, key: Key, session: OpenSession, effects: Effects) -> None:
        for arrival, _ in self.drop_tail(key):
            try:
                self._add(arrival, key, session, effects)
            except Exception as error:
                effects.dead_letters.append(arrival.letter(error))

    def _sort(self) -> None:
        self.open = dict(sorted(self.open.items(), key=lambda item: item[1].first_offset))

    def drop_tail(self, key: Key) -> Sequence[tuple[Arrival, DeadLetter]]:
        """Return its events, by sequence."""
        tail = self.tails.pop(key)
        self.tail_size -= tail.size
        return sorted(tail.events, key=lambda each: each[0].event.sequence)

    def _close(self, key: Key, session: OpenSession, effects: Effects) -> None:
        self.open.pop(key, None)
        self.incomplete.pop(key, None)
        self.closed[key] = session
        while len(self.closed) > _REMEMBERED_SESSIONS:
            self._forget_closed()
        session.put_observations(effects)
        trajectory, left_out = session.close()
        effects.dead_letters += left_out
        self._hand_on(trajectory, effects)
        self.metrics.sessions_closed.labels(trajectory.ending).inc()

    def _forget_closed(self) -> None:
        self.size -= self.closed.popitem(last=False)[1].size

    def _hand_on(self, trajectory: Trajectory, effects: Effects) -> None:
        value = trajectory.to_bounded_json(_MAX_TRAJECTORY_BYTES)
        effects.outgoing.append(Outgoing(self.tenant, "trajectories", trajectory.session, value))

    def close_stale(self, offset: int, effects: Effects) -> None:
        while self.open:
            key, oldest = next(iter(self.open.items()))
            if offset - oldest.first_offset <= MAX_OPEN_RECORDS:
                break
            self._close(key, oldest, effects)
        # Checking all open sessions for each record would cost more than the records.
        if self.newest_time - self.swept_time > self.silent_seconds / 8:
            self.swept_time = self.newest_time
            limit = self.newest_time - self.silent_seconds
            for key, session in list(self.open.items()):
                if session.last_time < limit:
                    self._close(key, session, effects)

    def bound(self, most: int, most_of_tails: int, effects: Effects) -> None:
        while self.size > most:
            if self.closed:
                self._forget_closed()
            elif self.open:
                key, oldest = next(iter(self.open.items()))
                self._close(key, oldest, effects)
            else:
                break
        while self.tail_size > most_of_tails:
            effects.dead_letters += [letter for _, letter in self.drop_tail(next(iter(self.tails)))]

    def unsettled(self, overdue: float) -> list[Key]:
        """Return the sessions that the store may know."""
        now = self.clock.monotonic()
        late = [key for key, arrived in self.incomplete.items() if arrived <= overdue]
        oldest = islice(self.open, _MOST_CHECKED if self.redelivery.begins(self.first_open, now) else 0)
        every = self.unknown.begins(self.first_tail, now)
        tails = [key for key, tail in self.tails.items() if every or not tail.asked]
        return list(dict.fromkeys((*late, *oldest, *tails[:_MOST_CHECKED])))

    def settle(
        self, keys: Sequence[Key], known: Mapping[Key, Trajectory | None] | None, overdue: float, effects: Effects
    ) -> None:
        """Tails wait if the store is unavailable (`known` is None); events cannot."""
        for key in keys:
            if (session := self.open.get(key)) is not None:
                # A judgment may cover the gap if a restart read a redelivered beginning.
                trajectory = known.get(key) if known is not None else None
                is_judged = trajectory is not None and session.drop_judged(trajectory)
                if is_judged or (key in self.incomplete and self.incomplete[key] <= overdue):
                    self._close(key, session, effects)
            elif known is not None:
                self._settle_tail(key, known.get(key), effects)
        now = self.clock.monotonic()
        self.redelivery.observe(self.first_open, now)
        self.unknown.observe(self.first_tail, now)

    def _settle_tail(self, key: Key, known: Trajectory | None, effects: Effects) -> None:
        tail = self.tails[key]
        tail.asked = True
        waited = self.clock.monotonic() - tail.arrived >= TAIL_SECONDS
        if known is not None:
            session = OpenSession.restored(known, tail.first_offset)
            # With a gap, the judgment of what came before may be on its way.
            if waited or min(each.event.sequence for each, _ in tail.events) <= max(session.sequences) + 1:
                self.closed[key] = session
                self.size += session.size
                self._add_tail(key, session, effects)
        elif waited and tail.last_time < self.newest_time - self.silent_seconds:
            effects.dead_letters += [letter for _, letter in self.drop_tail(key)]

    def hand_on(self, effects: Effects) -> None:
        for key, session in self.news.items():
            trajectory = session.way_out() if key in self.open else None
            if session.has_new_failure or trajectory is not None:
                session.put_observations(effects)  # as much as the trajectory holds: a restart may go on from it
            if trajectory is not None:
                self._hand_on(trajectory, effects)
        self.news.clear()

    def forget(self, erased: Erased) -> None:
        for key in [key for key in (*self.open, *self.closed) if erased.holds(self.tenant, *key[:2])]:
            for sessions in (self.open, self.closed):
                if (session := sessions.pop(key, None)) is not None:
                    self.size -= session.size
            self.incomplete.pop(key, None)
        for key, tail in list(self.tails.items()):
            tail.events = [each for each in tail.events if not each[0].is_erased(erased)]
            if not tail.events:
                self.drop_tail(key)
