"""The delivery core: a batch goes in, its effects happen, and only then may its offsets be committed.

At least once, and every effect idempotent. Data errors were turned into dead letters by the stage. An outage is retried in
place with growing pauses; when it lasts, the worker ends without committing and whoever starts it again redoes the batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from fleetlore.clock import Clock
from fleetlore.errors import BrokerUnavailable, StoreUnavailable
from fleetlore.topics import tenant_of, topic
from sinks.dead_letters import dead_letter_headers, dead_letter_value
from sinks.metrics import Metrics
from streams.stage import DeadLetter, Effects, Outgoing, Record, Stage, TopicPartition
from streams.store import Store

T = TypeVar("T")

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0


class Out(Protocol):
    """Where values and dead letters go; see `sinks.outbox.Outbox`, which is the real one."""

    async def deliver(self, values: Sequence[Outgoing]) -> None: ...

    async def bury(self, name: str, key: bytes | None, value: bytes, headers: list[tuple[str, bytes]]) -> None: ...


class Ledger:
    """How far processing has come and which offsets may be committed, by partition."""

    def __init__(self) -> None:
        self._positions: dict[TopicPartition, int] = {}
        self._pending: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}

    def allow(self, tp: TopicPartition, position: int, committable: int) -> None:
        """All before `position` is processed, and all before `committable` may be committed."""
        self._positions[tp] = position
        self._pending[tp] = committable

    def positions(self) -> dict[TopicPartition, int]:
        """Offset of the next record to process."""
        return dict(self._positions)

    def take(self) -> dict[TopicPartition, int]:
        """What has moved since it was last committed."""
        moved = {tp: offset for tp, offset in self._pending.items() if self._committed.get(tp) != offset}
        self._pending.clear()
        return moved

    def settle(self, offsets: dict[TopicPartition, int]) -> None:
        """The broker has taken these."""
        self._committed.update(offsets)

    def forget(self) -> None:
        """Partitions were handed out anew: what was allowed under the old assignment is worth nothing."""
        self._positions.clear()
        self._pending.clear()
        self._committed.clear()


class Delivery:
    """Runs stages. One for a worker; a stage's batches go through it one after the other."""

    def __init__(
        self, store: Store, outbox: Out, metrics: Metrics, clock: Clock, ledger: Ledger, budget_seconds: float = 120.0
    ) -> None:
        self._store = store
        self._outbox = outbox
        self._metrics = metrics
        self._clock = clock
        self._ledger = ledger
        self._budget_seconds = budget_seconds

    async def run(self, stage: Stage, batch: Sequence[Record]) -> None:
        """Process a batch and have its effects acknowledged; then allow its offsets to be committed.

        Raises:
            StoreUnavailable, BrokerUnavailable: an outage lasted longer than the budget; nothing may be committed.
        """
        started = self._clock.monotonic()
        effects = await self._retried(lambda: stage.process(batch), stage.name)
        await asyncio.gather(
            *(self._retried(partial(self._store.upsert, name, rows), name) for name, rows in effects.rows.items()),
            self._retried(lambda: self._outbox.deliver(effects.outgoing), stage.name),
            self._retried(lambda: self._bury(stage, effects.dead_letters), stage.name),
        )
        next_offsets: dict[TopicPartition, int] = {}
        for record in batch:
            next_offsets[record.tp] = max(record.offset + 1, next_offsets.get(record.tp, 0))
        for tp, offset in next_offsets.items():
            self._ledger.allow(tp, offset, stage.committable(tp, offset))
        self._count(stage, batch, effects, self._clock.monotonic() - started)

    async def _bury(self, stage: Stage, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            record = letter.record
            headers = dead_letter_headers(
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                stage=stage.name,
                reason=letter.reason,
                detail=letter.detail,
                value=letter.value,
            )
            name = topic(tenant_of(record.topic), "dead-letters")
            await self._outbox.bury(name, record.key, dead_letter_value(letter.value), headers)

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
