"""Stage 1: events → observations, trajectories.

Sessions are put together from their events, and what they have seen of tools and failures goes out with every batch, so
that other agents need not wait for a session's end. No state is kept outside: the commit of a partition never passes the
first event of a session that is still open, so after a crash the log gives every open session back, whole. That is bounded
by event time and by distance in the log, not by the clock. One clock there is: a session whose end overtook some of its other
events waits for them, but not for ever. What comes later still replaces what was handed on, so the clock decides how soon a
session is known and not what is known of it in the end. And a session that holds the commit back for seconds is looked up in the
store, for it may be one that was closed long ago and begins again with events that were sent twice (`streams.stages.s1_sessions.resent`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from fleetlore.clock import Clock
from fleetlore.errors import InvalidEvent
from fleetlore.wire.topics import tenant_of
from fleetlore.wire.trajectory import Feedback, encode
from sinks.metrics import Metrics
from streams.stage.base import Effects, Outgoing, Record, Stage, Store, TopicPartition, dead_letter
from streams.stages.s1_sessions.open_session import PART_EVENTS, OpenSession
from streams.stages.s1_sessions.parse import FEEDBACK, Incoming, bytes_of, read_events
from streams.stages.s1_sessions.resent import MOST_SESSIONS, RedeliveryCheck, known_to
from streams.stages.s1_sessions.sanitize import clean

# A session that lies further back than this many records is closed as continued, so that a restart never has more to redo.
MAX_OPEN_RECORDS = 100_000
# How long a session that has ended waits for an event that it lacks, at most: where nothing comes at all, it waits no longer.
# Clients keep a session in order, so what overtakes does it by a moment; what is still missing then was lost or refused.
GAP_SECONDS = 2.0
# Closed sessions that are remembered, so that what arrives twice or late is told from what is new.
REMEMBERED_SESSIONS = 2_000

Key = tuple[str, int]  # session, part


@dataclass(slots=True)
class Partition:
    """What is known of one partition of `events`.

    Attributes:
        open: sessions whose first event has been seen, oldest first event first.
        headless: the others. They hold no commit back: see `OpenSession.headless`.
        torn: those of `open` that have ended and lack events, and when the last event of each came (`Clock.monotonic`).
        closed: the last ones, oldest first.
        newest_time: the largest event time seen: the partition's own clock.
    """

    open: dict[Key, OpenSession] = field(default_factory=dict)
    headless: dict[Key, OpenSession] = field(default_factory=dict)
    torn: dict[Key, float] = field(default_factory=dict)
    closed: OrderedDict[Key, OpenSession] = field(default_factory=OrderedDict)
    patience: RedeliveryCheck = field(default_factory=RedeliveryCheck)
    newest_time: float = 0.0
    swept_time: float = 0.0

    def find(self, key: Key) -> OpenSession | None:
        return self.open.get(key) or self.headless.get(key) or self.closed.get(key)

    @property
    def held_at(self) -> int | None:
        """Where the oldest open session begins, which no commit passes."""
        oldest = next(iter(self.open.values()), None)
        return None if oldest is None else oldest.first_offset

    def place(self, key: Key, session: OpenSession) -> None:
        """File a session by whether its first event is known."""
        if session.headless:
            self.headless[key] = session
            return
        if self.headless.pop(key, None) is not None:
            self.open[key] = session
            # Its first record lies further back than those of sessions filed before it.
            self.open = dict(sorted(self.open.items(), key=lambda item: item[1].first_offset))
        else:
            self.open[key] = session


class SessionsStage(Stage):
    """See the module."""

    name = "sessions"
    reads = "events"

    def __init__(self, store: Store, clock: Clock, metrics: Metrics, silent_seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._silent_seconds = silent_seconds
        self._partitions: dict[TopicPartition, Partition] = {}

    @property
    def holds(self) -> bool:
        now = self._clock.monotonic()
        return any(partition.torn or partition.patience.over(now) for partition in self._partitions.values())

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        now = self._clock.now()
        arrivals: list[tuple[Record, list[Incoming]]] = []
        for record in batch:
            refused = len(effects.dead_letters)
            events = read_events(record, tenant_of(record.topic), now, effects)
            refused = len(effects.dead_letters) - refused
            self._metrics.received_events(record.topic).inc(len(events) + refused)
            arrivals.append((record, events))
        clean([event for _, events in arrivals for event in events])
        news: dict[int, OpenSession] = {}
        for record, events in arrivals:
            if (partition := self._partitions.get(record.tp)) is None:
                partition = self._partitions[record.tp] = Partition()
            tenant = tenant_of(record.topic)
            for event in events:
                try:
                    self._take(event, tenant, record, partition, news, effects)
                except InvalidEvent as error:
                    effects.dead_letters.append(dead_letter(record, error, bytes_of(event, record)))
                    effects.processed -= 1
            self._close_stale(partition, record.offset, effects)
        overdue = self._clock.monotonic() - GAP_SECONDS if batch else inf
        for partition in list(self._partitions.values()):  # a rebalance may come while the store is asked
            await self._close_torn(partition, overdue, effects)
            await self._close_known(partition, effects)
        for session in news.values():
            # A failure cannot wait until the session ends; what went well can.
            if session.news:
                self._tell(session, effects)
        self._metrics.open_sessions().set(sum(len(each.open) for each in self._partitions.values()))
        return effects

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        partition = self._partitions.get(tp)
        held_at = partition.held_at if partition else None
        return next_offset if held_at is None else min(held_at, next_offset)

    def forget(self) -> None:
        self._partitions.clear()

    def _take(
        self,
        event: Incoming,
        tenant: str,
        record: Record,
        partition: Partition,
        news: dict[int, OpenSession],
        effects: Effects,
    ) -> None:
        if event.type == FEEDBACK:
            self._take_feedback(event, tenant, partition, effects)
            return
        sequence, time = event.sequence, event.time.timestamp()
        key = (event.session, sequence // PART_EVENTS)
        session = partition.find(key)
        new = session is None
        if session is None:
            session = OpenSession(tenant, event.session, event.agent, key[1], record.offset, time, time)
        elif session.agent != event.agent:
            raise InvalidEvent(
                "foreign_agent", f"session {event.session!r} is {session.agent!r}'s, not {event.agent!r}'s"
            )
        elif sequence in session.sequences or sequence < session.behind:
            self._metrics.duplicate_events().inc()
            return
        session.add(event, time)
        if not session.follows(sequence):
            error = InvalidEvent("sequence_gap", f"{sequence} came without {sequence - 1}")
            session.suspects[sequence] = dead_letter(record, error, bytes_of(event, record))
        if time > partition.newest_time:
            partition.newest_time = time
        if time > effects.newest:
            effects.newest = time
        if time < effects.oldest:
            effects.oldest = time
        if session.news:
            news[id(session)] = session
        if new or key in partition.headless:
            partition.place(key, session)
        if session.complete or key in partition.closed:
            self._close(partition, key, session, effects)
        elif session.ending is not None and not session.headless:
            partition.torn[key] = self._clock.monotonic()

    def _take_feedback(self, event: Incoming, tenant: str, partition: Partition, effects: Effects) -> None:
        """A session that is open takes it along; to one that was closed, or never seen, it is sent after."""
        label = event.data.outcome
        if label == "unknown":
            return
        feedback = Feedback(session=event.session, label=label, time=event.time.timestamp(), by=event.agent)
        session = partition.find((event.session, 0))
        if session is not None:
            session.feedback = feedback.newest(session.feedback)
        if (event.session, 0) not in partition.open:
            effects.outgoing.append(Outgoing(tenant, "trajectories", event.session, feedback.to_json()))

    def _tell(self, session: OpenSession, effects: Effects) -> None:
        for seen in session.take_observations():
            effects.outgoing.append(Outgoing(session.tenant, "observations", seen.subject.id, encode(seen)))

    def _close(self, partition: Partition, key: Key, session: OpenSession, effects: Effects) -> None:
        """Hand a session on. One that was closed before is handed on again, for it has learned of another event."""
        partition.open.pop(key, None)
        partition.headless.pop(key, None)
        partition.torn.pop(key, None)
        self._tell(session, effects)
        if session.headless:
            return
        partition.closed[key] = session
        while len(partition.closed) > REMEMBERED_SESSIONS:
            partition.closed.popitem(last=False)
        trajectory, jumped = session.close()
        effects.dead_letters.extend(jumped)
        effects.outgoing.append(Outgoing(session.tenant, "trajectories", session.session, trajectory.to_json()))
        self._metrics.sessions_closed(trajectory.ending).inc()

    async def _close_torn(self, partition: Partition, overdue: float, effects: Effects) -> None:
        """Close the sessions that have waited long enough for what they lack: nothing has come since `overdue`."""
        late = [key for key, arrived in partition.torn.items() if arrived <= overdue]
        if late:
            # What one lacks may lie behind a judgment: its beginning was sent twice, and a restart read it from the middle on.
            await self._ask_about([partition.open[key] for key in late])
        for key in late:
            self._close(partition, key, partition.open[key], effects)

    async def _close_known(self, partition: Partition, effects: Effects) -> None:
        """Close what only repeats what is behind a judgment already. Merged into that, it changes nothing."""
        now = self._clock.monotonic()
        partition.patience.note(partition.held_at, now)
        if not partition.patience.over(now):
            return
        partition.patience.asked(now)
        oldest = list(islice(partition.open.items(), MOST_SESSIONS))
        known = await self._ask_about([session for _, session in oldest])
        for (key, session), is_known in zip(oldest, known, strict=True):
            if is_known:
                self._close(partition, key, session, effects)
        partition.patience.note(partition.held_at, now)

    async def _ask_about(self, sessions: Sequence[OpenSession]) -> list[bool]:
        """Whether each is behind a judgment, wholly or in part. What follows on that part lacks nothing."""
        known = await known_to(self._store, sessions)
        for session, behind in zip(sessions, known, strict=True):
            if behind is not None:
                session.behind = behind
                session.suspects = {sequence: each for sequence, each in session.suspects.items() if sequence >= behind}
        return [behind is not None for behind in known]

    def _close_stale(self, partition: Partition, offset: int, effects: Effects) -> None:
        """Close what holds the commit back for too long: by distance in the log, and by the partition's own clock."""
        while partition.open:
            key, oldest = next(iter(partition.open.items()))
            if offset - oldest.first_offset <= MAX_OPEN_RECORDS:
                break
            self._close(partition, key, oldest, effects)
        # Looking at all open sessions for every record would cost more than the records do.
        if partition.newest_time - partition.swept_time > self._silent_seconds / 8:
            partition.swept_time = partition.newest_time
            limit = partition.newest_time - self._silent_seconds
            for sessions in (partition.open, partition.headless):
                for key, session in list(sessions.items()):
                    if session.last_time < limit:
                        self._close(partition, key, session, effects)
