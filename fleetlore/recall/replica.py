"""Keeps a tenant's lore in the agent's memory: follows the compacted topics `patterns` and `items`.

No consumer group: every agent reads all of it from the beginning, so a late joiner knows what the others know. After an
outage it goes on where it stopped; where the log has been replaced by a shorter one (a broker in memory was restarted),
from the beginning. What it knows it keeps meanwhile: old advice is better than none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import lru_cache
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from fleetlore.clock import Clock, SystemClock
from fleetlore.errors import BrokerUnavailable
from fleetlore.kafka.client import STOP_SECONDS, connect, disconnect
from fleetlore.kafka.quiet import quiet_client_logs
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import MemoryItem, Pattern
from fleetlore.wire.topics import topic

__all__ = ["LoreReplica"]

log = logging.getLogger(__name__)

_POLL_MS = 1000
_BATCH = 100  # records decoded between two turns of the event loop: 5 ms
_METADATA_AGE_MS = 5_000  # how soon a topic that is created after the agent's start is noticed
_REQUEST_TIMEOUT_MS = 10_000
_FIRST_BACKOFF_SECONDS = 0.1
_LAST_BACKOFF_SECONDS = 2.0

# Agents of one process read the same bytes: each record is decoded once for all of them. What comes out is immutable and
# is shared; as many are remembered as an agent that lags or joins late may be behind the others.
_DECODED = 4096
_pattern = lru_cache(maxsize=_DECODED)(Pattern.from_json)
_item = lru_cache(maxsize=_DECODED)(MemoryItem.from_json)


class LoreReplica:
    """Follows from `start()` to `close()`; survives broker outages.

    Args:
        bootstrap: Kafka bootstrap servers.
        fetch_wait_ms: how long the broker may hold a fetch open; lower is sooner and costs more requests.

    Attributes:
        index: all lore known so far.
        unreadable: records skipped because this version of fleetlore cannot read them.
    """

    def __init__(self, bootstrap: str, tenant: str, *, fetch_wait_ms: int = 50, clock: Clock | None = None) -> None:
        self.index = LoreIndex()
        self.unreadable = 0
        self._bootstrap = bootstrap
        self._fetch_wait_ms = fetch_wait_ms
        self._patterns_topic = topic(tenant, "patterns")
        self._items_topic = topic(tenant, "items")
        self._clock = clock or SystemClock()
        self._positions: dict[TopicPartition, int] = {}
        self._first_ends: dict[TopicPartition, int] | None = None
        self._consumer: Any = None
        self._task: asyncio.Task[None] | None = None

    @property
    def loaded(self) -> bool:
        """Whether all lore that existed when the broker first answered is known here."""
        ends = self._first_ends
        return ends is not None and not any(self._behind(part, end) for part, end in ends.items())

    def learned_at(self, id: str) -> float | None:
        """When (wall time, seconds) a pattern or item first became known here; None if it has not."""
        return self.index.learned_at(id)

    async def start(self) -> None:
        """Begin to follow; returns at once, whether or not the broker answers."""
        quiet_client_logs()
        self._task = asyncio.create_task(self._follow(), name="fleetlore-replica")

    async def close(self) -> None:
        """Stop following; what is known stays readable. Never hangs."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=3 * STOP_SECONDS)
            self._task = None

    async def caught_up(self, timeout_seconds: float) -> bool:
        """Wait until all that the topics hold at this moment is known here; False when the time is up."""
        try:
            async with asyncio.timeout(timeout_seconds):
                ends: dict[TopicPartition, int] | None = None
                while ends is None or any(self._behind(part, end) for part, end in ends.items()):
                    if ends is None and self._consumer is not None:
                        with contextlib.suppress(KafkaError, OSError):
                            ends = await _ends(self._consumer)
                            continue
                    await asyncio.sleep(0.01)
        except TimeoutError:
            return False
        return True

    def _behind(self, part: TopicPartition, end: int) -> bool:
        """`end` is a lower bound on tansu (see `fleetlore.kafka.offsets`); the fetch that reaches it brings the true one."""
        highwater = self._consumer.highwater(part) if self._consumer is not None else None
        return self._positions.get(part, 0) < max(end, highwater or 0)

    @classmethod
    async def snapshot(cls, bootstrap: str, tenant: str, *, timeout_seconds: float = 10.0) -> LoreIndex:
        """Read all lore once, for a command that shows it.

        Raises:
            BrokerUnavailable: it could not be read within the time.
        """
        replica = cls(bootstrap, tenant)
        await replica.start()
        try:
            if await replica.caught_up(timeout_seconds):
                return replica.index
        finally:
            await replica.close()
        raise BrokerUnavailable(f"the lore could not be read from broker {bootstrap} within {timeout_seconds:g} s")

    async def _follow(self) -> None:
        backoff, reported = _FIRST_BACKOFF_SECONDS, False
        while True:
            try:
                consumer = await self._connect()
                try:
                    backoff, reported = _FIRST_BACKOFF_SECONDS, False
                    self._consumer = consumer
                    await self._consume(consumer)
                finally:
                    self._consumer = None
                    await disconnect(consumer)
            except Exception as failure:  # whatever it was: the agent goes on with what is known
                if not reported:
                    log.warning("lore cannot be followed on broker %s, trying again: %r", self._bootstrap, failure)
                    reported = True
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, _LAST_BACKOFF_SECONDS)

    async def _connect(self) -> Any:
        consumer = AIOKafkaConsumer(
            self._patterns_topic,
            self._items_topic,
            bootstrap_servers=self._bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=self._fetch_wait_ms,
            metadata_max_age_ms=_METADATA_AGE_MS,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
        )
        try:
            await connect(consumer)
            ends = await _ends(consumer)
            self._first_ends = ends if self._first_ends is None else self._first_ends
            for part, end in ends.items():
                position = self._positions.get(part, 0)
                if 0 < position <= end:
                    consumer.seek(part, position)
                else:
                    self._positions.pop(part, None)
        except BaseException:
            await disconnect(consumer)
            raise
        return consumer

    async def _consume(self, consumer: Any) -> None:
        idle_since = self._clock.monotonic()
        while True:
            batches = await consumer.getmany(timeout_ms=_POLL_MS, max_records=_BATCH)
            for part, records in batches.items():
                # An agent that is behind meets many versions of a key at once, and only the last of them counts.
                newest = {record.key: record.value for record in records}
                for key, value in newest.items():
                    self._apply(part.topic, key, value)
                self._positions[part] = records[-1].offset + 1
            await asyncio.sleep(0)  # the client gives what it has fetched without one
            if batches:
                idle_since = self._clock.monotonic()
            elif self._clock.monotonic() - idle_since > _REQUEST_TIMEOUT_MS / 1000:
                # The client swallows a lost connection and waits for addresses that may never come back: ask for the end
                # offsets, which fails where the broker is gone and shows where its log has been replaced.
                idle_since = self._clock.monotonic()
                ends = await _ends(consumer)
                # tansu names the first offset of the last batch: the end that the last fetch told is nearer.
                known = {part: max(end, consumer.highwater(part) or 0) for part, end in ends.items()}
                if any(self._positions.get(part, 0) > end for part, end in known.items()):
                    raise BrokerUnavailable("its log is shorter than before")

    def _apply(self, topic_name: str, key: bytes | None, value: bytes | None) -> None:
        index, now = self.index, self._clock.now()
        try:
            if value is None:
                forget = index.forget_pattern if topic_name == self._patterns_topic else index.forget_item
                forget((key or b"").decode())
            elif topic_name == self._patterns_topic:
                index.put_pattern(_pattern(value), now)
            else:
                index.put_item(_item(value), now)
        except (ValueError, TypeError, KeyError, AttributeError):
            self.unreadable += 1
            if self.unreadable == 1:
                log.warning("a record on %s cannot be read by this version of fleetlore; skipped", topic_name)


async def _ends(consumer: Any) -> dict[TopicPartition, int]:
    """End offsets of everything assigned; only positions that are known are compared with them."""
    async with asyncio.timeout(_REQUEST_TIMEOUT_MS / 1000):
        ends: dict[TopicPartition, int] = await consumer.end_offsets(consumer.assignment())
        return ends
