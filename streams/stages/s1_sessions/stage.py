"""Assemble sessions from events, and hand on observations and trajectories (stage 1).

Observations go out with every batch, and an open session as soon as it got past a failure. No state is kept outside: no
commit passes an open session's first event, so a restart reads it again.

Three waits depend on the clock, and none changes the final result: `GAP_SECONDS`, `TAIL_SECONDS`, and
`FIRST_CHECK_SECONDS` until the store tells whether a session was redelivered. A session closed for silence goes on with
a late event, from memory or from the store.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from fleetlore.clock import Clock
from fleetlore.errors import StoreUnavailable
from fleetlore.recall.search import row_id
from fleetlore.wire.decode import FEEDBACK, Incoming
from fleetlore.wire.principals import Principals, session_key
from fleetlore.wire.trajectory import Trajectory
from models.judge import SessionState
from sinks.metrics import Metrics
from streams.stage.base import Effects, Record, Stage, Store, TopicPartition
from streams.stage.operators import Erased
from streams.stages.s1_sessions.parse import Arrival, clean_records, read_events
from streams.stages.s1_sessions.partition import Key, Partition

__all__ = ["SessionsStage"]

# An ended session's wait for a missing event. Clients send in order, so a later one was lost or refused.
GAP_SECONDS = 2.0
# Bytes of a worker's sessions. Beyond, they are closed early and go on from the store.
MAX_BYTES = 96 * 2**20
# Bytes of all tails. Events beyond become dead letters.
MAX_TAIL_BYTES = 32 * 2**20


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
                partition = Partition(record.tenant, self.silent_seconds, self.clock, self.metrics)
                self._partitions[record.tp] = partition
            for event in events:
                arrival = Arrival(event, record)
                try:
                    if self.erased.count and arrival.is_erased(self.erased):
                        continue
                    if event.type == FEEDBACK:
                        effects.outgoing += arrival.feedback(claimed=True)
                    else:
                        partition.receive(arrival, effects)
                except Exception as error:
                    effects.dead_letters.append(arrival.letter(error))
                    effects.processed -= 1
            partition.close_stale(record.offset, effects)
            partition.bound(MAX_BYTES // len(self._partitions), MAX_TAIL_BYTES // len(self._partitions), effects)
        overdue = self.clock.monotonic() - GAP_SECONDS if batch else inf
        for partition in self._partitions.values():
            if keys := partition.unsettled(overdue):
                partition.settle(keys, await self._stored(partition.tenant, keys), overdue, effects)
            partition.hand_on(effects)
        self.metrics.open_sessions.set(sum(len(each.open) for each in self._partitions.values()))
        return effects

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        partition = self._partitions.get(tp)
        first_offset = partition.first_offset if partition else None
        return next_offset if first_offset is None else min(first_offset, next_offset)

    def _drop_erased(self) -> None:
        if self._erased_seen == self.erased.count:
            return
        self._erased_seen = self.erased.count
        for partition in self._partitions.values():
            partition.forget(self.erased)

    async def _stored(self, tenant: str, keys: Sequence[Key]) -> dict[Key, Trajectory | None] | None:
        ids = {row_id(tenant, session_key(*key)): key for key in keys}
        try:
            rows = await self.store.get("judgments", list(ids), "state")
        except StoreUnavailable:
            return None
        return {ids[id]: SessionState.from_json(row["state"]).trajectory for id, row in rows.items()}
