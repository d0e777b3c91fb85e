"""Assemble sessions from events, and hand on observations and trajectories (stage 1).

Observations go out with every batch, and an open session as soon as it got past a failure. No state is kept outside: no
commit passes an open session's first event, so a restart reads it again.

Three waits depend on the clock, and none changes the final result: `GAP_SECONDS`, `TAIL_SECONDS`, and
`FIRST_CHECK_SECONDS` until the store tells whether a session was redelivered. A session closed for silence goes on with
a late event, from memory or from the store.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from fleetlore.clock import Clock
from fleetlore.errors import InvalidEvent, StoreUnavailable
from fleetlore.recall.search import row_id
from fleetlore.wire.decode import FEEDBACK, Incoming
from fleetlore.wire.principals import Principals, principal_of, session_key
from fleetlore.wire.topics import tenant_of
from fleetlore.wire.trajectory import Trajectory, encode
from models.judge import SessionState
from sinks.metrics import Metrics
from streams.stage.base import Effects, Outgoing, Record, Stage, Store, TopicPartition
from streams.stage.operators import Erased
from streams.stages.s1_sessions.open_session import PART_EVENTS, OpenSession, after_end
from streams.stages.s1_sessions.parse import clean_records, feedback_of, letter_of, read_events
from streams.stages.s1_sessions.partition import Arrival, Key, Partition, Waiting

__all__ = ["SessionsStage"]

# Beyond, a session is closed as continued: this bounds what a restart reads again.
MAX_OPEN_RECORDS = 100_000
# Kafka's default batch limit is 1 MiB; a long session may have six times that.
_MAX_TRAJECTORY_BYTES = 900_000
# An ended session's wait for a missing event. Clients send in order, so a later one was lost or refused.
GAP_SECONDS = 2.0
# A tail's least wait for its session's judgment: after an outage, event time runs ahead.
TAIL_SECONDS = 60.0
# Bytes of a worker's sessions. Beyond, they are closed early and go on from the store.
MAX_BYTES = 96 * 2**20
# Bytes of all tails. Events beyond become dead letters.
MAX_TAIL_BYTES = 32 * 2**20
# A partition's oldest sessions that one query covers.
_MOST_CHECKED = 256


@dataclass(eq=False)
class SessionsStage(Stage):
    name = "sessions"
    reads = "events"

    store: Store
    clock: Clock
    metrics: Metrics
    silent_seconds: float
    erased: Erased = field(default_factory=Erased)
    principals: Principals | None = None

    def __post_init__(self) -> None:
        self._erased_seen = 0
        self._partitions: dict[TopicPartition, Partition] = {}

    @property
    def holds(self) -> bool:
        now = self.clock.monotonic()
        return any(
            each.incomplete or each.redelivery.due(now) or each.unknown.due(now) for each in self._partitions.values()
        )

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        self._drop_erased()
        read: list[tuple[Record, list[Incoming]]] = []
        for record in batch:
            before = len(effects.dead_letters)
            events = read_events(record, effects, self.principals)
            self.metrics.received_events.labels(record.topic).inc(len(events) + len(effects.dead_letters) - before)
            read.append((record, events))
        clean_records(read, effects, self.principals)
        for record, events in read:
            if (partition := self._partitions.get(record.tp)) is None:
                partition = self._partitions[record.tp] = Partition()
            for event in events:
                key = principal_of(event.agent), event.session, event.sequence // PART_EVENTS
                arrival = Arrival(event, key, record)
                try:
                    self._take(arrival, partition, effects)
                except Exception as error:
                    effects.dead_letters.append(letter_of(event, record, error))
                    effects.processed -= 1
            self._close_stale(partition, record.offset, effects)
            self._bound(partition, effects)
        overdue = self.clock.monotonic() - GAP_SECONDS if batch else inf
        for partition in self._partitions.values():
            await self._close_incomplete(partition, overdue, effects)
            await self._close_redelivered(partition, effects)
            await self._settle_tails(partition, effects)
            for key, session in partition.news.items():
                trajectory = session.way_out() if key in partition.open else None
                if session.has_new_failure or trajectory is not None:
                    self._report(session, effects)  # as much as the trajectory holds: a restart may go on from it
                if trajectory is not None:
                    value = trajectory.to_bounded_json(_MAX_TRAJECTORY_BYTES)
                    effects.outgoing.append(Outgoing(session.tenant, "trajectories", session.session, value))
            partition.news.clear()
        self.metrics.open_sessions.set(sum(len(each.open) for each in self._partitions.values()))
        return effects

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        partition = self._partitions.get(tp)
        first_offset = partition.first_offset if partition else None
        return next_offset if first_offset is None else min(first_offset, next_offset)

    def _take(self, arrival: Arrival, partition: Partition, effects: Effects) -> None:
        event, key, record = arrival
        if self._is_erased(arrival):
            return
        if event.type == FEEDBACK:
            if (feedback := feedback_of(event, claimed=True)) is not None:
                effects.outgoing.append(Outgoing(record.tenant, "trajectories", event.session, feedback.to_json()))
            return
        time = event.time.timestamp()
        if time > partition.newest_time:
            partition.newest_time = time
        if time > effects.newest:
            effects.newest = time
        if time < effects.oldest:
            effects.oldest = time
        if (session := partition.find(key)) is not None:
            self._add(arrival, session, partition, effects)
        elif event.sequence % PART_EVENTS:
            partition.wait(arrival, self.clock.monotonic())
        else:
            session = OpenSession(record.tenant, event.session, event.agent, key[2], record.offset)
            waiting = partition.begin(key, session)
            self._add(arrival, session, partition, effects)
            self._add_waiting(waiting, session, partition, effects)

    def _add(self, arrival: Arrival, session: OpenSession, partition: Partition, effects: Effects) -> None:
        event, key, record = arrival
        sequence, time = event.sequence, event.time.timestamp()
        known = sequence in session.sequences
        if known and session.is_another(sequence, time):
            raise InvalidEvent("reused_session", f"session {session.session!r} has another event {sequence}")
        if known or sequence < session.persisted_up_to:
            self.metrics.duplicate_events.inc()
            return
        if session.ended_at is not None and sequence > session.ended_at:
            raise after_end()
        before = session.size
        if record.time < inf:  # no broker stamped the record
            session.arrived = max(session.arrived, record.time)
        session.add(event, time)
        if event.data.advice:
            self.metrics.advised_calls.labels("given").inc()
        if event.data.withheld:
            self.metrics.advised_calls.labels("withheld").inc()
        if not session.follows(sequence):
            session.out_of_order[sequence] = letter_of(event, record, after_end())
            session.size += len(record.value or b"")
        partition.size += session.size - before
        if session.has_new_failure or session.has_way_out:
            partition.news[key] = session
        if key in partition.closed:
            self.metrics.reopened_sessions.inc()
            partition.reopen(key, record.offset)
        if session.complete:
            self._close(partition, key, session, effects)
        elif session.ending is not None:
            partition.incomplete[key] = self.clock.monotonic()

    def _add_waiting(self, waiting: Waiting, session: OpenSession, partition: Partition, effects: Effects) -> None:
        for arrival, _ in waiting:
            try:
                self._add(arrival, session, partition, effects)
            except Exception as error:
                effects.dead_letters.append(letter_of(arrival.event, arrival.record, error))

    def _is_erased(self, arrival: Arrival) -> bool:
        event, tenant, erased = arrival.event, arrival.record.tenant, self.erased
        return bool(erased.count) and erased.drops(tenant, event.session, event.agent, event.time.timestamp())

    def _drop_erased(self) -> None:
        if self._erased_seen == self.erased.count:
            return
        self._erased_seen = self.erased.count
        for tp, partition in self._partitions.items():
            tenant = tenant_of(tp.topic)
            known = (*partition.open, *partition.closed)
            partition.forget([key for key in known if self.erased.holds(tenant, *key[:2])])
            for key, tail in list(partition.tails.items()):
                tail.events = [each for each in tail.events if not self._is_erased(each[0])]
                if not tail.events:
                    partition.drop_tail(key)

    def _report(self, session: OpenSession, effects: Effects) -> None:
        for seen in session.take_observations():
            effects.outgoing.append(Outgoing(session.tenant, "observations", seen.subject.id, encode(seen)))

    def _close(self, partition: Partition, key: Key, session: OpenSession, effects: Effects) -> None:
        self._report(session, effects)
        partition.close(key, session)
        trajectory, left_out = session.close()
        effects.dead_letters.extend(left_out)
        value = trajectory.to_bounded_json(_MAX_TRAJECTORY_BYTES)
        effects.outgoing.append(Outgoing(session.tenant, "trajectories", session.session, value))
        self.metrics.sessions_closed.labels(trajectory.ending).inc()

    async def _close_incomplete(self, partition: Partition, overdue: float, effects: Effects) -> None:
        late = [key for key, arrived in partition.incomplete.items() if arrived <= overdue]
        if late:
            # A stored judgment may cover the gap if a restart read a redelivered beginning.
            await self._find_persisted([partition.open[key] for key in late])
        for key in late:
            self._close(partition, key, partition.open[key], effects)

    async def _close_redelivered(self, partition: Partition, effects: Effects) -> None:
        now = self.clock.monotonic()
        if not partition.redelivery.begins(partition.first_open, now):
            return
        oldest = list(islice(partition.open.items(), _MOST_CHECKED))
        persisted = await self._find_persisted([session for _, session in oldest])
        for (key, session), is_persisted in zip(oldest, persisted, strict=True):
            if is_persisted:
                self._close(partition, key, session, effects)
        partition.redelivery.observe(partition.first_open, now)

    async def _settle_tails(self, partition: Partition, effects: Effects) -> None:
        now = self.clock.monotonic()
        every = partition.unknown.begins(partition.first_tail, now)
        asked = [(key, tail) for key, tail in partition.tails.items() if every or not tail.asked][:_MOST_CHECKED]
        if not asked:
            return
        try:
            known = await self._stored([(tail.events[0][0].record.tenant, session_key(*key)) for key, tail in asked])
        except StoreUnavailable:
            return  # this can wait and events cannot
        oldest = partition.newest_time - self.silent_seconds
        for (key, tail), known_one in zip(asked, known, strict=True):
            tail.asked = True
            waited = now - tail.arrived >= TAIL_SECONDS
            if known_one is not None:
                session = OpenSession.restored(known_one, tail.first_offset)
                # With a gap, the judgment of what came before may be on its way.
                if waited or min(each.event.sequence for each, _ in tail.events) <= max(session.sequences) + 1:
                    self._add_waiting(partition.restore(key, session), session, partition, effects)
            elif waited and tail.last_time < oldest:
                effects.dead_letters += [letter for _, letter in partition.drop_tail(key)]
        partition.unknown.observe(partition.first_tail, now)

    async def _find_persisted(self, sessions: Sequence[OpenSession]) -> list[bool]:
        try:
            known = await self._stored([(each.tenant, each.id) for each in sessions])
        except StoreUnavailable:
            return [False] * len(sessions)
        found = [
            None if trajectory is None else session.covered_by(trajectory)
            for session, trajectory in zip(sessions, known, strict=True)
        ]
        for session, upto in zip(sessions, found, strict=True):
            if upto is not None:
                session.persisted_up_to = upto
                session.out_of_order = {each: letter for each, letter in session.out_of_order.items() if each >= upto}
        return [upto is not None for upto in found]

    async def _stored(self, keys: Sequence[tuple[str, str]]) -> list[Trajectory | None]:
        ids = [row_id(*key) for key in keys]
        rows = await self.store.get("judgments", ids, "state")
        return [SessionState.from_json(rows[id]["state"]).trajectory if id in rows else None for id in ids]

    def _close_stale(self, partition: Partition, offset: int, effects: Effects) -> None:
        while partition.open:
            key, oldest = next(iter(partition.open.items()))
            if offset - oldest.first_offset <= MAX_OPEN_RECORDS:
                break
            self._close(partition, key, oldest, effects)
        # Checking all open sessions for each record would cost more than the records.
        if partition.newest_time - partition.swept_time > self.silent_seconds / 8:
            partition.swept_time = partition.newest_time
            limit = partition.newest_time - self.silent_seconds
            for key, session in list(partition.open.items()):
                if session.last_time < limit:
                    self._close(partition, key, session, effects)

    def _bound(self, partition: Partition, effects: Effects) -> None:
        most = MAX_BYTES // len(self._partitions)
        while partition.size > most:
            if partition.closed:
                partition.forget_closed()
            elif partition.open:
                key, oldest = next(iter(partition.open.items()))
                self._close(partition, key, oldest, effects)
            else:
                break
        most = MAX_TAIL_BYTES // len(self._partitions)
        while partition.tail_size > most:
            effects.dead_letters += [letter for _, letter in partition.drop_tail(next(iter(partition.tails)))]
