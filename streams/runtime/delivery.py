"""Process a batch, have its effects acknowledged, and only then allow its commit.

Delivery is at least once and every effect is idempotent. Bad events and refused rows become dead letters. An outage is
retried with backoff; if it lasts, the worker ends without a commit and the next start repeats the batch.

A worker paused for longer than its session timeout wakes up with states that another worker owns. Kafka refuses its
commits, but the store would accept its rows, so effects need a lease. The coordinator accepts commits from members
only, so each accepted commit renews the lease.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, TypeVar

import orjson

from fleetlore.clock import Clock, SystemClock
from fleetlore.errors import (
    BreakerTripped,
    BrokerUnavailable,
    ConfigError,
    LeaseLapsed,
    RecordsRefused,
    RowRefused,
    StoreUnavailable,
)
from fleetlore.kafka.client import backoff
from fleetlore.wire.dead_letter import RECORD_REFUSED, ROW_REFUSED, UNREADABLE, RawRecord
from fleetlore.wire.topics import tenant_of
from sinks.collections import alias_of
from sinks.metrics import Metrics
from sinks.producer import COMPACTED, BatchProducer
from streams.runtime.bad_records import Breaker, record_of, records_of
from streams.stage.base import DeadLetter, Effects, Outgoing, Record, Stage, Store, TopicPartition

__all__ = ["Delivery", "Ledger"]

T = TypeVar("T")

log = logging.getLogger(__name__)


class Ledger:
    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._positions: dict[TopicPartition, int] = {}
        self._first: dict[TopicPartition, int] = {}
        self._pending: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._held: dict[TopicPartition, tuple[int, float]] = {}

    def allow(self, tp: TopicPartition, position: int, committable: int) -> None:
        """Offsets before `position` are processed, and those before `committable` may be committed."""
        self._positions[tp] = position
        self._pending[tp] = committable
        self._first.setdefault(tp, committable)

    def hold(self, tp: TopicPartition, offset: int, seconds: float) -> None:
        """Commit no offset from `offset` on for `seconds`. Earlier commits remain."""
        self._held[tp] = offset, self._clock.monotonic() + seconds

    def positions(self) -> dict[TopicPartition, int]:
        return dict(self._positions)

    def uncommitted(self) -> dict[TopicPartition, int]:
        """Count processed but uncommitted records, which a restart reads again. Before a commit: the first batch's."""
        return {tp: max(0, at - self._committed.get(tp, self._first[tp])) for tp, at in self._positions.items()}

    def take(self) -> dict[TopicPartition, int]:
        moved, kept = {}, {}
        for tp, offset in self._pending.items():
            start, until = self._held.get(tp, (offset, 0.0))
            if start < offset and self._clock.monotonic() < until:
                kept[tp] = offset
                offset = max(start, self._committed.get(tp, 0))
            if self._committed.get(tp) != offset:
                moved[tp] = offset
        self._pending = kept
        return moved

    def settle(self, offsets: dict[TopicPartition, int]) -> None:
        """Record a commit. A forgotten partition may return at another offset."""
        self._committed.update({tp: offset for tp, offset in offsets.items() if tp in self._positions})

    def put_back(self, offsets: dict[TopicPartition, int]) -> None:
        """Restore offsets whose commit failed, unless newer ones are allowed."""
        self._pending = {tp: offset for tp, offset in offsets.items() if tp in self._positions} | self._pending

    def forget(self) -> None:
        self._positions.clear()
        self._first.clear()
        self._pending.clear()
        self._committed.clear()
        self._held.clear()


# The margin covers the coordinator's later clock and the write itself.
SHARE = 0.8

# It goes on while the machine sleeps.
_since_boot = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    def __init__(self, seconds: float, clock: Callable[[], float] = _since_boot) -> None:
        self._seconds, self.now = seconds, clock
        self._until = float("-inf")

    def renew(self, asked: float) -> None:
        self._until = max(self._until, asked + self._seconds)

    @property
    def holds(self) -> bool:
        return self.now() < self._until

    def check(self) -> None:
        if not self.holds:
            raise LeaseLapsed(
                "the coordinator has taken no commit for a session timeout: another worker may have taken over"
            )


# The commit of a suspect run is held back until it has not grown for this long (see `bad_records`).
_SUSPECT_SECONDS = 5.0


class SecondWrites:
    """Repeats the first writes of each stage after an assignment.

    The previous owner's write can land after them, until its deadline (`seconds`). The new owner then writes again.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until = 0.0
        # By stage: the newest row of each id and value of each key.
        self._rows: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
        self._values: dict[str, dict[tuple[str, str, str], Outgoing]] = {}

    def begin(self) -> None:
        self._until = self._clock.monotonic() + self._seconds
        self._rows.clear()
        self._values.clear()

    def owes(self, stage: str) -> bool:
        return bool(self._rows.get(stage) or self._values.get(stage)) and self._clock.monotonic() >= self._until

    def take(self, stage: str, effects: Effects) -> None:
        due = self.owes(stage)
        rows, values = self._rows.pop(stage, {}), self._values.pop(stage, {})
        if not due and self._clock.monotonic() >= self._until:
            return
        new = {(name, row["id"]): row for name, of_name in effects.rows.items() for row in of_name}
        sent = {(each.tenant, each.topic, each.key): each for each in effects.outgoing if each.topic in COMPACTED}
        if not due:
            self._rows[stage], self._values[stage] = rows | new, values | sent
            return
        for (name, id), row in rows.items():
            if (name, id) not in new:
                effects.rows.setdefault(name, []).append(row)
        effects.outgoing[:0] = [value for key, value in values.items() if key not in sent]


@dataclass(eq=False)
class Delivery:
    """Runs the batches of each stage one after the other.

    `lease`: None for a single worker. `write_seconds`: how long a former owner's write may land. `stopped`: topics not
    processed until the next start; `run` raises when all tenants have stopped.
    """

    store: Store
    producer: BatchProducer
    metrics: Metrics
    clock: Clock
    ledger: Ledger
    budget_seconds: float = 120.0
    breaker: Breaker = field(default_factory=Breaker)
    lease: Lease | None = None
    write_seconds: float = 0.0
    tenants: int = 1

    def __post_init__(self) -> None:
        self.second_writes = SecondWrites(self.write_seconds, self.clock)
        self.stopped: set[str] = set()
        self._last: dict[tuple[str, str], Record] = {}
        self._readers: dict[str, str] = {}
        self._writes: dict[str, asyncio.Task[None]] = {}  # by stage: its next batches do not wait for this write

    async def run(self, stage: Stage, batch: Sequence[Record]) -> None:
        """Process a batch and allow its commit.

        Rows with `Effects.acknowledged` are written in the background. An empty batch waits for all. Raises
        StoreUnavailable, BrokerUnavailable, BreakerTripped, ConfigError. Then no offset may be committed.
        """
        if (reader := self._readers.setdefault(stage.reads, stage.name)) != stage.name:
            raise ConfigError(f"stages {reader!r} and {stage.name!r} both read {stage.reads!r}: a topic has one reader")
        started = self.clock.monotonic()
        batch = [record for record in batch if record.topic not in self.stopped] if self.stopped else batch
        self._last |= {(stage.name, record.tenant): record for record in batch}
        given = [record for record in batch if not record.unreadable]
        effects = await self._retried(lambda: stage.process(given), stage.name)
        for record in batch:
            if record.unreadable:
                effects.dead_letters.append(DeadLetter(record, record.value or b"", UNREADABLE, record.unreadable))
        self.second_writes.take(stage.name, effects)
        self._feed_breaker(stage, batch, effects)
        positions = self._positions(stage, batch)
        sinks = [self._deliver(stage, effects.outgoing, positions)]
        if effects.dead_letters:
            sinks.append(self._send_to_dlq(stage, records_of(stage, effects.dead_letters)))
        if effects.acknowledged is None:
            sinks.append(self._write(stage, effects))
        await asyncio.gather(*sinks)
        if effects.acknowledged is not None:
            # Keep writes in order.
            await self._written(stage)
            self._writes[stage.name] = asyncio.create_task(self._write(stage, effects))
        if not batch:
            await self._written(stage)
        self._allow(stage, batch)
        self._count(stage, batch, effects, self.clock.monotonic() - started)

    def forget(self) -> None:
        """Drop all state after a rebalance. A running write then allows no commit."""
        for write in self._writes.values():
            write.cancel()
        self._writes.clear()
        self.ledger.forget()
        self.breaker.forget()
        self.stopped.clear()

    def _allow(self, stage: Stage, batch: Sequence[Record]) -> None:
        # The batch may complete effects that held back another partition.
        for tp, offset in self._positions(stage, batch).items():
            if tp.topic not in self.stopped:
                self.ledger.allow(tp, offset, stage.committable(tp, offset))

    def _positions(self, stage: Stage, batch: Sequence[Record]) -> dict[TopicPartition, int]:
        own = f".{stage.reads}"
        found = {tp: offset for tp, offset in self.ledger.positions().items() if tp.topic.endswith(own)}
        for record in batch:
            found[record.tp] = max(record.offset + 1, found.get(record.tp, 0))
        return found

    async def _write(self, stage: Stage, effects: Effects) -> None:
        refused = await asyncio.gather(*(self._upsert(stage, name, rows) for name, rows in effects.rows.items()))
        await self._send_to_dlq(stage, [record for each in refused for record in each])
        if effects.acknowledged is not None:
            effects.acknowledged()
            self._allow(stage, ())

    async def _written(self, stage: Stage) -> None:
        write = self._writes.get(stage.name)
        if write is not None:
            await write

    def _feed_breaker(self, stage: Stage, batch: Sequence[Record], effects: Effects) -> None:
        topics = {record.topic for record in batch}
        tripped = self.breaker.weigh(batch, effects.dead_letters, stage.principals)
        for name in topics:
            self.metrics.lost_run.labels(name).set(self.breaker.run(name))
        self._hold_back(topics - tripped.keys(), _SUSPECT_SECONDS)
        if not tripped:
            return
        # Hold back without limit: the worker still commits other topics.
        self._hold_back(tripped, inf)
        self._stop(tripped)
        # Each start would send these dead letters again.
        effects.dead_letters = [each for each in effects.dead_letters if each.record.topic not in tripped]

    def _stop(self, tripped: Mapping[str, BreakerTripped]) -> None:
        self.stopped |= tripped.keys()
        if len({tenant_of(name) for name in self.stopped}) == self.tenants:
            raise next(iter(tripped.values()))
        for error in tripped.values():
            log.critical("%s", error)

    def _hold_back(self, topics: Iterable[str], seconds: float) -> None:
        for name in topics:
            for tp, start in self.breaker.suspect(name).items():
                self.ledger.hold(tp, start, seconds)

    async def _upsert(self, stage: Stage, target: str, rows: Sequence[dict[str, Any]]) -> list[RawRecord]:
        refused: frozenset[str] = frozenset()
        collection = alias_of(target)
        try:
            await self._retried(partial(self.store.upsert, target, rows), collection)
        except RowRefused as error:
            refused, detail = frozenset(error.ids), error.detail
        by_tenant: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            by_tenant.setdefault(row["tenant"], []).append(row)
        letters: list[RawRecord] = []
        for tenant, mine in by_tenant.items():
            bad = [row for row in mine if row["id"] in refused]
            # A row combines many records.
            last = self._last[stage.name, tenant]
            if self._weigh_rows(last, collection, len(mine) - len(bad), bad) and bad:
                self.metrics.dead_letters.labels(ROW_REFUSED).inc(len(bad))
                values = [orjson.dumps(row, default=str) for row in bad]
                letters += [record_of(stage, DeadLetter(last, value, ROW_REFUSED, detail)) for value in values]
        return letters

    def _weigh_rows(self, last: Record, collection: str, good: int, bad: Sequence[dict[str, Any]]) -> bool:
        rows = f"{last.topic}/{collection}"
        if last.topic in self.stopped:
            return False
        try:
            if good:
                self.breaker.good(rows)
            else:
                for row in bad:  # only workers write rows, so each row is a separate sender
                    self.breaker.lost(rows, ROW_REFUSED, last.time, row["id"])
        except BreakerTripped as error:
            self._stop({last.topic: error})
            return False
        finally:
            self.metrics.lost_run.labels(rows).set(self.breaker.run(rows))
        return True

    async def _deliver(self, stage: Stage, values: Sequence[Outgoing], positions: Mapping[TopicPartition, int]) -> None:
        read = {(tenant_of(tp.topic), tp.partition): offset for tp, offset in positions.items()}
        try:
            await self._retried(lambda: self.producer.deliver(values, read), stage.name)
        except RecordsRefused as error:
            self.metrics.dead_letters.labels(RECORD_REFUSED).inc(len(error.values))
            letters = [
                DeadLetter(self._last[stage.name, tenant_of(name)], value, RECORD_REFUSED, error.detail)
                for name, value in error.values
            ]
            await self._send_to_dlq(stage, [record_of(stage, letter) for letter in letters])

    async def _send_to_dlq(self, stage: Stage, records: Sequence[RawRecord]) -> None:
        if not records:
            return
        try:
            await self._retried(lambda: self.producer.send(records), stage.name)
        except RecordsRefused as error:
            log.error(
                "%s: %s; the refused records stay on their own topics until they expire. The worker goes on. Raise "
                "max.message.bytes of the topic dead-letters: `fleetlore topics apply`",
                stage.name,
                error,
            )

    async def _retried(self, attempt: Callable[[], Awaitable[T]], what: str) -> T:
        deadline, pauses = self.clock.monotonic() + self.budget_seconds, backoff()
        while True:
            try:
                if self.lease is not None:
                    self.lease.check()
                return await attempt()
            except (StoreUnavailable, BrokerUnavailable) as error:
                pause = next(pauses)
                if self.clock.monotonic() + pause > deadline:
                    raise
                log.warning("%s: %s; trying again in %.1f s", what, error, pause)
                if isinstance(error, StoreUnavailable):
                    self.metrics.sink_retries.labels(what).inc()
            await asyncio.sleep(pause)

    def _count(self, stage: Stage, batch: Sequence[Record], effects: Effects, seconds: float) -> None:
        metrics = self.metrics
        metrics.stage_duration.labels(stage.name).observe(seconds)
        metrics.processed_events.labels(stage.name).inc(effects.processed)
        if effects.newest:
            metrics.end_to_end_latency.labels(stage.name).observe(max(0.0, self.clock.now() - effects.newest))
        for name, records in Counter([record.topic for record in batch]).items():
            metrics.received_records.labels(name).inc(records)
        for letter in effects.dead_letters:
            metrics.dead_letters.labels(letter.reason).inc()
