"""The delivery core: a batch goes in, its effects happen, and only then may its offsets be committed.

At least once, and every effect idempotent. Data errors were turned into dead letters by the stage, and a row that the store
will never take becomes one here. An outage is retried in place with growing pauses; when it lasts, or when a whole stream
is being refused (`streams.runtime.circuit_breaker`), the worker ends without committing and whoever starts it again redoes the batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import Any, Protocol, TypeVar

import orjson

from fleetlore.clock import Clock, SystemClock
from fleetlore.errors import BreakerTripped, BrokerUnavailable, ConfigError, RowRefused, StoreUnavailable
from fleetlore.wire.dead_letter import ROW_REFUSED, RawRecord
from fleetlore.wire.topics import tenant_of
from sinks.metrics import Metrics
from streams.runtime.circuit_breaker import Breaker
from streams.runtime.dead_letters import is_lost, letter_of, letters_of
from streams.stage.base import DeadLetter, Effects, Outgoing, Record, Stage, Store, TopicPartition

T = TypeVar("T")

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0

# A suspect run of lost records is not committed for so long after it last grew: see `streams.runtime.circuit_breaker`.
SUSPECT_SECONDS = 5.0
# An event behind a gap was good when it came; that the one before it never came says nothing about the stream's shape.
NOT_LOST = frozenset({"sequence_gap"})


class Out(Protocol):
    """Where values and dead letters go; see `sinks.producer.BatchProducer`, which is the real one."""

    async def deliver(self, values: Sequence[Outgoing]) -> None: ...

    async def post(self, letters: Sequence[RawRecord]) -> None: ...


class Ledger:
    """How far processing has come and which offsets may be committed, by partition."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._positions: dict[TopicPartition, int] = {}
        self._pending: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._held: dict[TopicPartition, tuple[int, float]] = {}

    def allow(self, tp: TopicPartition, position: int, committable: int) -> None:
        """All before `position` is processed, and all before `committable` may be committed."""
        self._positions[tp] = position
        self._pending[tp] = committable

    def hold(self, tp: TopicPartition, offset: int, seconds: float) -> None:
        """For so long, commit nothing from `offset` on, whatever is allowed. What was committed already stays so."""
        self._held[tp] = offset, self._clock.monotonic() + seconds

    def positions(self) -> dict[TopicPartition, int]:
        """Offset of the next record to process."""
        return dict(self._positions)

    def take(self) -> dict[TopicPartition, int]:
        """What has moved since it was last committed."""
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
        """The broker has taken these. What was forgotten meanwhile may come back at another offset and be allowed once more."""
        self._committed.update({tp: offset for tp, offset in offsets.items() if tp in self._positions})

    def put_back(self, offsets: dict[TopicPartition, int]) -> None:
        """The broker has not taken these: where nothing else is allowed meanwhile, they are tried again."""
        self._pending = {tp: offset for tp, offset in offsets.items() if tp in self._positions} | self._pending

    def forget(self) -> None:
        """Partitions were handed out anew: what was allowed under the old assignment is worth nothing."""
        self._positions.clear()
        self._pending.clear()
        self._committed.clear()
        self._held.clear()


class Delivery:
    """Runs stages. One for a worker; a stage's batches go through it one after the other."""

    def __init__(
        self,
        store: Store,
        outbox: Out,
        metrics: Metrics,
        clock: Clock,
        ledger: Ledger,
        budget_seconds: float = 120.0,
        breaker: Breaker | None = None,
    ) -> None:
        self._store = store
        self._outbox = outbox
        self._metrics = metrics
        self._clock = clock
        self._ledger = ledger
        self._budget_seconds = budget_seconds
        self._breaker = breaker or Breaker()
        self._newest: dict[tuple[str, str], Record] = {}
        self._readers: dict[str, str] = {}  # by topic: the stage that reads it
        self._behind: dict[str, asyncio.Task[None]] = {}  # by stage: rows that its next batches do not wait for

    async def run(self, stage: Stage, batch: Sequence[Record]) -> None:
        """Process a batch and have its effects acknowledged; then allow its offsets to be committed.

        Rows whose stage wants to be told when they are (`Effects.acknowledged`) are written behind: the stage's next batches go on
        meanwhile, but for one with rows of its own, and an empty one, which waits for all.

        Raises:
            StoreUnavailable, BrokerUnavailable: an outage lasted longer than the budget; nothing may be committed.
            BreakerTripped: a whole stream is being refused; nothing may be committed.
            ConfigError: another stage reads the same topic, and a commit of either would skip what the other has not done.
        """
        if (reader := self._readers.setdefault(stage.reads, stage.name)) != stage.name:
            raise ConfigError(f"stages {reader!r} and {stage.name!r} both read {stage.reads!r}: a topic has one reader")
        started = self._clock.monotonic()
        self._newest |= {(stage.name, tenant_of(record.topic)): record for record in batch}
        effects = await self._retried(lambda: stage.process(batch), stage.name)
        self._weigh(batch, effects.dead_letters)
        letters = letters_of(stage, effects.dead_letters)
        sinks = [
            self._retried(lambda: self._outbox.deliver(effects.outgoing), stage.name),
            self._send_to_dlq(stage, letters),
        ]
        if effects.acknowledged is None:
            sinks.append(self._write(stage, effects))
        await asyncio.gather(*sinks)
        if effects.acknowledged is not None:
            # What was written first must not arrive last, and a slow store holds the stage up.
            await self._written(stage)
            self._behind[stage.name] = asyncio.create_task(self._write(stage, effects))
        if not batch:
            await self._written(stage)
        self._allow(stage, batch)
        self._count(stage, batch, effects, self._clock.monotonic() - started)

    def _allow(self, stage: Stage, batch: Sequence[Record]) -> None:
        # Of all its partitions, since what it held back of one may have come with a batch of another.
        own = f".{stage.reads}"
        next_offsets = {tp: offset for tp, offset in self._ledger.positions().items() if tp.topic.endswith(own)}
        for record in batch:
            next_offsets[record.tp] = max(record.offset + 1, next_offsets.get(record.tp, 0))
        for tp, offset in next_offsets.items():
            self._ledger.allow(tp, offset, stage.committable(tp, offset))

    def forget(self) -> None:
        """Partitions were handed out anew. What is still being written must not allow a commit any more."""
        for write in self._behind.values():
            write.cancel()
        self._behind.clear()
        self._ledger.forget()
        self._breaker.forget()

    async def _write(self, stage: Stage, effects: Effects) -> None:
        refused = await asyncio.gather(*(self._upsert(stage, name, rows) for name, rows in effects.rows.items()))
        await self._send_to_dlq(stage, [letter for each in refused for letter in each])
        if effects.acknowledged is not None:
            effects.acknowledged()
            self._allow(stage, ())

    async def _written(self, stage: Stage) -> None:
        write = self._behind.get(stage.name)
        if write is not None:
            await write

    def _weigh(self, batch: Sequence[Record], letters: Sequence[DeadLetter]) -> None:
        """Tell the breaker of every record whether it was lost, before anything of the batch takes effect."""
        bad: dict[tuple[TopicPartition, int], list[DeadLetter]] = {}
        for letter in letters:
            if letter.reason not in NOT_LOST:
                bad.setdefault((letter.record.tp, letter.record.offset), []).append(letter)
        names = _by_topic(batch)
        try:
            if not bad:
                for name, records in names.items():
                    self._breaker.good(name, records)
                return
            for record in batch:
                mine = bad.get((record.tp, record.offset))
                if mine and is_lost(record, mine):
                    self._breaker.lost(record.topic, mine[0].reason, record.tp, record.offset)
                else:
                    self._breaker.good(record.topic)
        except BreakerTripped:
            # For good: the worker still commits what its other stages have done, and that may take its time.
            self._hold(names, inf)
            raise
        finally:
            for name in names:
                self._metrics.lost_run(name).set(self._breaker.run(name))
        self._hold(names, SUSPECT_SECONDS)

    def _hold(self, names: Iterable[str], seconds: float) -> None:
        for name in names:
            for tp, start in self._breaker.suspect(name).items():
                self._ledger.hold(tp, start, seconds)

    async def _upsert(self, stage: Stage, collection: str, rows: Sequence[dict[str, Any]]) -> list[RawRecord]:
        """Write rows; return the letters of those that the store will never take.

        Such a row is made of many records, so its letter holds the row and names the last record of its tenant.
        """
        try:
            await self._retried(partial(self._store.upsert, collection, rows), collection)
        except RowRefused as error:
            refused = set(error.ids)
            bad = [row for row in rows if row["id"] in refused]
            if len(bad) < len(rows):
                self._breaker.good(collection)
            else:
                for _ in bad:
                    self._breaker.lost(collection, ROW_REFUSED)
            self._metrics.lost_run(collection).set(self._breaker.run(collection))
            self._metrics.dead_letters(ROW_REFUSED).inc(len(bad))
            return [
                letter_of(
                    stage,
                    DeadLetter(
                        self._newest[stage.name, row["tenant"]],
                        orjson.dumps(row, default=str),
                        ROW_REFUSED,
                        error.detail,
                    ),
                )
                for row in bad
            ]
        if rows and self._breaker.run(collection):
            self._breaker.good(collection)
            self._metrics.lost_run(collection).set(0)
        return []

    async def _send_to_dlq(self, stage: Stage, letters: Sequence[RawRecord]) -> None:
        if letters:
            await self._retried(lambda: self._outbox.post(letters), stage.name)

    async def _retried(self, attempt: Callable[[], Awaitable[T]], what: str) -> T:
        deadline = self._clock.monotonic() + self._budget_seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return await attempt()
            except (StoreUnavailable, BrokerUnavailable) as error:
                if self._clock.monotonic() + pause > deadline:
                    raise
                log.warning("%s: %s; trying again in %.1f s", what, error, pause)
                if isinstance(error, StoreUnavailable):
                    self._metrics.sink_retries(what).inc()
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _count(self, stage: Stage, batch: Sequence[Record], effects: Effects, seconds: float) -> None:
        metrics = self._metrics
        metrics.stage_duration(stage.name).observe(seconds)
        metrics.processed_events(stage.name).inc(effects.processed)
        if effects.newest:
            metrics.end_to_end_latency(stage.name).observe(max(0.0, self._clock.now() - effects.newest))
        for name, records in _by_topic(batch).items():
            metrics.received_records(name).inc(records)
        for letter in effects.dead_letters:
            metrics.dead_letters(letter.reason).inc()


def _by_topic(batch: Sequence[Record]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for record in batch:
        counts[record.topic] = counts.get(record.topic, 0) + 1
    return counts
