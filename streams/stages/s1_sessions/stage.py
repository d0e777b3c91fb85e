"""Assemble sessions from events, and hand on observations and trajectories (stage 1).

Observations of tools and failures go out with every batch, so other agents need not wait for a session's end. No state
is kept outside: the commit of a partition never passes the first event of an open session, so after a crash the log
gives every open session back, whole. How much a restart reads again is bounded by event time and by distance in the
log.

Only two things depend on the clock, and neither changes what is known in the end. A session whose end overtook other
events waits a while for them; a later arrival still replaces its trajectory. And where a session holds the commit back
for seconds, the store is asked whether it was redelivered: a worker that was restarted, or has closed many sessions
since, cannot tell a redelivered session from a new one. Its end lies before the commit and does not come again, so it
would hold the commit back for ever; but its judgment is in the store and says up to which event the session is known.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from fleetlore.clock import Clock
from fleetlore.errors import InvalidEvent, StoreUnavailable
from fleetlore.wire.topics import tenant_of
from fleetlore.wire.trajectory import encode
from models.judge.session_state import SessionState
from sinks.metrics import Metrics
from sinks.milvus import row_id
from streams.stage.base import Effects, Outgoing, Record, Stage, Store, TopicPartition, dead_letter
from streams.stage.erased import Erased
from streams.stages.s1_sessions.open_session import PART_EVENTS, OpenSession
from streams.stages.s1_sessions.parse import FEEDBACK, Data, Incoming, bytes_of, feedback_of, read_events
from streams.stages.s1_sessions.sanitize import clean

# A session that begins further back than this is closed as continued, which bounds what a restart reads again.
MAX_OPEN_RECORDS = 100_000
# Kafka's default limit of a batch is 1 MiB, and a long session of texts that do not compress may have six times that.
MAX_TRAJECTORY_BYTES = 900_000
# How long a session that has ended waits for a missing event. Clients keep a session in order, so an event is late by a
# moment; one that is still missing then was lost or refused.
GAP_SECONDS = 2.0
# Closed sessions in memory, by which duplicates and late events are recognised.
REMEMBERED_SESSIONS = 2_000

# How long a session may hold a commit back before the store is asked about it; the pause doubles each time.
FIRST_CHECK_SECONDS = 5.0
LONGEST_CHECK_SECONDS = 60.0
# The oldest sessions of a partition, asked about at once: redelivered events come in records of many sessions.
MOST_CHECKED = 256

Key = tuple[str, int]  # session, part


class RedeliveryCheck:
    """When to ask the store about sessions that hold a partition back: with exponential backoff."""

    def __init__(self) -> None:
        self._first_offset: int | None = None
        self._pause = 0.0
        self._next = 0.0

    def observe(self, first_offset: int | None, now: float) -> None:
        """Note by which offset the commit is held back (None: it is not), at a time of `Clock.monotonic`."""
        if first_offset != self._first_offset:
            self._first_offset, self._pause, self._next = first_offset, FIRST_CHECK_SECONDS, now + FIRST_CHECK_SECONDS

    def due(self, now: float) -> bool:
        return self._first_offset is not None and now >= self._next

    def checked(self, now: float) -> None:
        self._pause = min(2 * self._pause, LONGEST_CHECK_SECONDS)
        self._next = now + self._pause


@dataclass(slots=True)
class Partition:
    """The sessions of one partition of `events`.

    Attributes:
        open: sessions whose first event has arrived, oldest first event first.
        missing_start: the other sessions. They hold no commit back: see `OpenSession.missing_start`.
        incomplete: sessions of `open` that have ended and miss events; and when the last event of each came
            (`Clock.monotonic`).
        closed: the last ones, oldest first.
        continuing: closed sessions of which another event has come in this batch.
        newest_time: the largest event time seen: the partition's own clock.
    """

    open: dict[Key, OpenSession] = field(default_factory=dict)
    missing_start: dict[Key, OpenSession] = field(default_factory=dict)
    incomplete: dict[Key, float] = field(default_factory=dict)
    closed: OrderedDict[Key, OpenSession] = field(default_factory=OrderedDict)
    continuing: dict[Key, OpenSession] = field(default_factory=dict)
    redelivery: RedeliveryCheck = field(default_factory=RedeliveryCheck)
    newest_time: float = 0.0
    swept_time: float = 0.0

    def find(self, key: Key) -> OpenSession | None:
        return self.open.get(key) or self.missing_start.get(key) or self.closed.get(key) or self.continuing.get(key)

    @property
    def first_offset(self) -> int | None:
        """Where the oldest open session begins, which no commit passes."""
        oldest = next(iter(self.open.values()), None)
        return None if oldest is None else oldest.first_offset

    def place(self, key: Key, session: OpenSession) -> None:
        """File a session by whether its first event has arrived."""
        if session.missing_start:
            self.missing_start[key] = session
            return
        self.open[key] = session
        if self.missing_start.pop(key, None) is not None:
            # Its first record lies further back than those of sessions filed before it.
            self.open = dict(sorted(self.open.items(), key=lambda item: item[1].first_offset))


class SessionsStage(Stage):
    """See the module."""

    name = "sessions"
    reads = "events"

    def __init__(
        self, store: Store, clock: Clock, metrics: Metrics, silent_seconds: float, erased: Erased | None = None
    ) -> None:
        self._store = store
        self._erased = erased or Erased()
        self._erased_seen = 0
        self._clock = clock
        self._metrics = metrics
        self._silent_seconds = silent_seconds
        self._partitions: dict[TopicPartition, Partition] = {}

    @property
    def holds(self) -> bool:
        now = self._clock.monotonic()
        return any(partition.incomplete or partition.redelivery.due(now) for partition in self._partitions.values())

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        self._drop_erased()
        now = self._clock.now()
        arrivals: list[tuple[Record, list[Incoming]]] = []
        for record in batch:
            refused = len(effects.dead_letters)
            events = read_events(record, tenant_of(record.topic), now, effects)
            refused = len(effects.dead_letters) - refused
            self._metrics.received_events(record.topic).inc(len(events) + refused)
            arrivals.append((record, events))
        clean([event for _, events in arrivals for event in events])
        failed: dict[int, OpenSession] = {}
        for record, events in arrivals:
            if (partition := self._partitions.get(record.tp)) is None:
                partition = self._partitions[record.tp] = Partition()
            tenant = tenant_of(record.topic)
            for event in events:
                try:
                    self._take(event, tenant, record, partition, failed, effects)
                except InvalidEvent as error:
                    effects.dead_letters.append(dead_letter(record, error, bytes_of(event, record)))
                    effects.processed -= 1
            self._close_stale(partition, record.offset, effects)
        for partition in self._partitions.values():
            # Once a batch: handed on for each event, a session that paused after ten of 500 came to 214 times its size.
            for key, session in partition.continuing.items():
                self._close(partition, key, session, effects)
            partition.continuing.clear()
        overdue = self._clock.monotonic() - GAP_SECONDS if batch else inf
        for partition in list(self._partitions.values()):  # a rebalance may come while the store is asked
            await self._close_incomplete(partition, overdue, effects)
            await self._close_redelivered(partition, effects)
        for session in failed.values():
            # A failure cannot wait until the session ends; successful calls can.
            if session.has_new_failure:
                self._report(session, effects)
        self._metrics.open_sessions().set(sum(len(each.open) for each in self._partitions.values()))
        return effects

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        partition = self._partitions.get(tp)
        first_offset = partition.first_offset if partition else None
        return next_offset if first_offset is None else min(first_offset, next_offset)

    def forget(self) -> None:
        self._partitions.clear()

    def _take(
        self,
        event: Incoming,
        tenant: str,
        record: Record,
        partition: Partition,
        failed: dict[int, OpenSession],
        effects: Effects,
    ) -> None:
        # Most tenants have erased nothing, and this is asked for every event.
        if self._erased.count and self._erased.drops(tenant, event.session, event.agent, event.time.timestamp()):
            return
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
        elif sequence in session.sequences or sequence < session.persisted_up_to:
            self._metrics.duplicate_events().inc()
            return
        session.add(event, time)
        self._count_advice(event.data)
        if not session.follows(sequence):
            error = InvalidEvent("sequence_gap", f"{sequence} came without {sequence - 1}")
            session.out_of_order[sequence] = dead_letter(record, error, bytes_of(event, record))
        if time > partition.newest_time:
            partition.newest_time = time
        if time > effects.newest:
            effects.newest = time
        if time < effects.oldest:
            effects.oldest = time
        if session.has_new_failure:
            failed[id(session)] = session
        if new or key in partition.missing_start:
            partition.place(key, session)
        if key in partition.closed:
            partition.continuing[key] = session
        elif session.complete:
            self._close(partition, key, session, effects)
        elif session.ending is not None and not session.missing_start:
            partition.incomplete[key] = self._clock.monotonic()

    def _drop_erased(self) -> None:
        """Let go of sessions that were erased since the last batch."""
        if self._erased_seen == self._erased.count:
            return
        self._erased_seen = self._erased.count
        for tp, partition in self._partitions.items():
            tenant = tenant_of(tp.topic)
            for kept in (partition.open, partition.missing_start, partition.incomplete, partition.closed):
                for key in [key for key in kept if self._erased.holds(tenant, key[0])]:
                    del kept[key]

    def _take_feedback(self, event: Incoming, tenant: str, partition: Partition, effects: Effects) -> None:
        """Add feedback to an open session; for one that is closed or unknown, send it on by itself.

        Among the events it is a claim: what outranks a reward comes by a topic of its own.
        """
        feedback = feedback_of(event, claimed=True)
        if feedback is None:
            return
        session = partition.find((event.session, 0))
        if session is not None:
            session.feedback = feedback.newest(session.feedback)
        if (event.session, 0) not in partition.open:
            effects.outgoing.append(Outgoing(tenant, "trajectories", event.session, feedback.to_json()))

    def _count_advice(self, data: Data) -> None:
        for of_call, advice in (("given", data.advice), ("withheld", data.withheld), ("cited", data.cited)):
            if advice:
                self._metrics.advised_calls(of_call).inc()

    def _report(self, session: OpenSession, effects: Effects) -> None:
        for seen in session.take_observations():
            effects.outgoing.append(Outgoing(session.tenant, "observations", seen.subject.id, encode(seen)))

    def _close(self, partition: Partition, key: Key, session: OpenSession, effects: Effects) -> None:
        """Hand a session on; again, where it was closed before and another of its events has arrived."""
        partition.open.pop(key, None)
        partition.missing_start.pop(key, None)
        partition.incomplete.pop(key, None)
        self._report(session, effects)
        if session.missing_start:
            return
        partition.closed[key] = session
        while len(partition.closed) > REMEMBERED_SESSIONS:
            partition.closed.popitem(last=False)
        trajectory, left_out = session.close()
        effects.dead_letters.extend(left_out)
        effects.outgoing.append(
            Outgoing(session.tenant, "trajectories", session.session, trajectory.to_bounded_json(MAX_TRAJECTORY_BYTES))
        )
        self._metrics.sessions_closed(trajectory.ending).inc()

    async def _close_incomplete(self, partition: Partition, overdue: float, effects: Effects) -> None:
        """Close the incomplete sessions of which nothing has come since `overdue`."""
        late = [key for key, arrived in partition.incomplete.items() if arrived <= overdue]
        if late:
            # A stored judgment may cover the gap: the beginning was redelivered, and a restart read it from the middle
            # on.
            await self._find_persisted([partition.open[key] for key in late])
        for key in late:
            self._close(partition, key, partition.open[key], effects)

    async def _close_redelivered(self, partition: Partition, effects: Effects) -> None:
        """Close the sessions that a stored judgment covers. Merged into that, they change nothing."""
        now = self._clock.monotonic()
        partition.redelivery.observe(partition.first_offset, now)
        if not partition.redelivery.due(now):
            return
        partition.redelivery.checked(now)
        oldest = list(islice(partition.open.items(), MOST_CHECKED))
        persisted = await self._find_persisted([session for _, session in oldest])
        for (key, session), is_persisted in zip(oldest, persisted, strict=True):
            if is_persisted:
                self._close(partition, key, session, effects)
        partition.redelivery.observe(partition.first_offset, now)

    async def _find_persisted(self, sessions: Sequence[OpenSession]) -> list[bool]:
        """Look up which sessions a stored judgment covers, wholly or in part: no event after it is out of order."""
        ids = [row_id(each.tenant, each.id) for each in sessions]
        try:
            rows = await self._store.get("judgments", ids, "state")
        except StoreUnavailable:
            rows = {}  # this can wait and events cannot
        found = [
            _persisted_up_to(session, rows[id]["state"]) if id in rows else None
            for session, id in zip(sessions, ids, strict=True)
        ]
        for session, upto in zip(sessions, found, strict=True):
            if upto is not None:
                session.persisted_up_to = upto
                session.out_of_order = {each: letter for each, letter in session.out_of_order.items() if each >= upto}
        return [upto is not None for upto in found]

    def _close_stale(self, partition: Partition, offset: int, effects: Effects) -> None:
        """Close sessions that hold the commit back too long, by distance in the log or by event time."""
        while partition.open:
            key, oldest = next(iter(partition.open.items()))
            if offset - oldest.first_offset <= MAX_OPEN_RECORDS:
                break
            self._close(partition, key, oldest, effects)
        # To look at all open sessions for every record would cost more than the records do.
        if partition.newest_time - partition.swept_time > self._silent_seconds / 8:
            partition.swept_time = partition.newest_time
            limit = partition.newest_time - self._silent_seconds
            for sessions in (partition.open, partition.missing_start):
                for key, session in list(sessions.items()):
                    if session.last_time < limit:
                        self._close(partition, key, session, effects)


def _persisted_up_to(session: OpenSession, state: str) -> int | None:
    """Up to which sequence a stored judgment covers a session; None where the session may become one of its own.

    Where the store knows that a session ended and misses events of it, any event may be one of those: it covers none.
    """
    known = SessionState.from_json(state).trajectory
    if known is None or known.agent != session.agent:
        return None
    first = session.part * PART_EVENTS
    if known.missing == 0 and max(session.sequences) < first + known.events:
        return first + known.events
    return None if known.ending == "continued" else first
