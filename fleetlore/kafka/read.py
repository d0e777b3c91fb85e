"""Read topics up to their current end, or follow them across outages."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from math import inf
from typing import Any

from aiokafka import ConsumerRecord, OffsetAndMetadata, TopicPartition
from aiokafka.errors import GroupCoordinatorNotAvailableError, KafkaError

from fleetlore.clock import Clock, SystemClock
from fleetlore.cluster import Bootstrap, named
from fleetlore.errors import BrokerUnavailable, ConfigError
from fleetlore.kafka.batches import readable
from fleetlore.kafka.by_relay import RelayConsumer
from fleetlore.kafka.client import (
    LONGEST_DELAY_SECONDS,
    backoff,
    check_place,
    connect,
    connected,
    connections,
    disconnect,
    make_consumer,
    no_broker,
)
from fleetlore.wire.dead_letter import DeadLetterRecord, Mark, read_dead_letter
from fleetlore.wire.topics import DAY_SECONDS, TOMBSTONE_SECONDS, topic

log = logging.getLogger(__name__)

_FETCH_WAIT_MS = 20
POLL_MS = 200
# aiokafka finds a moved leader only by this refresh.
_METADATA_AGE_MS = 5_000
# Bounds the cost of a hanging broker; aiokafka's default is 40 s.
_REQUEST_MS = 8_000
# The client itself waits without end for a lost broker.
_STALL_SECONDS = 60.0


async def read_dead_letters(
    bootstrap: Bootstrap, tenant: str, timeout_seconds: float
) -> AsyncIterator[DeadLetterRecord | Mark]:
    async for record in records_of(bootstrap, topic(tenant, "dead-letters"), stall_seconds=timeout_seconds):
        if (read := read_dead_letter(record)) is not None:
            yield read


@asynccontextmanager
async def observer(bootstrap: Bootstrap, group: str | None = None) -> AsyncIterator[Any]:
    """Yield a consumer that joins no group."""
    times: dict[str, Any] = {"metadata_max_age_ms": _METADATA_AGE_MS, "request_timeout_ms": _REQUEST_MS}
    consumer = make_consumer(bootstrap, group=group, fetch_max_wait_ms=_FETCH_WAIT_MS, **times)
    try:
        await connect(consumer)
    except KafkaError as error:
        raise no_broker(bootstrap, error) from error
    try:
        yield consumer
    except KafkaError as error:
        raise BrokerUnavailable(f"the broker at {bootstrap} does not answer: {error!r}") from error
    finally:
        await disconnect(consumer)


async def partitions_of(consumer: Any, *topics: str) -> list[TopicPartition]:
    """Return all partitions of the topics, without creating a missing topic."""
    # `consumer.partitions_for_topic` knows only assigned topics.
    cluster = await connections(consumer).fetch_all_metadata()
    return [
        TopicPartition(topic, partition)
        for topic in topics
        for partition in sorted(cluster.partitions_for_topic(topic) or ())
    ]


async def committed_offsets(
    admin: Any, group: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return a group's commit of each partition, or offset -1. Raises KafkaError: the coordinator did not answer."""
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    if partitions:
        found = await admin.list_consumer_group_offsets(group, partitions=list(partitions))
    if missing := set(partitions) - found.keys():
        raise GroupCoordinatorNotAvailableError(f"{group}: not said what is committed on {min(missing)}")
    return found


async def end_offsets(consumer: Any, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the offset after each partition's last committed record, and reassign `consumer`.

    It is read from a fetch: tansu answers with the first offset of the last *batch* plus one.
    """
    wanted = list(partitions)
    if not wanted:
        return {}
    about = await consumer.end_offsets(wanted)
    consumer.assign(wanted)
    for partition, offset in about.items():
        consumer.seek(partition, offset)
    while any(consumer.last_stable_offset(partition) is None for partition in wanted):
        await consumer.getmany(*wanted, timeout_ms=_FETCH_WAIT_MS)
    return {partition: consumer.last_stable_offset(partition) for partition in wanted}


async def read_until(
    consumer: Any, ends: Mapping[TopicPartition, int], *, most: int | None = None, stall_seconds: float = inf
) -> AsyncIterator[list[ConsumerRecord]]:
    """Yield fetches until `consumer` has passed `ends`; the last one may reach beyond.

    Raises BrokerUnavailable: no record came for `stall_seconds`.
    """
    came = time.monotonic()
    # Retention and transactions leave gaps in the offsets.
    while unread := [partition for partition, end in ends.items() if await consumer.position(partition) < end]:
        fetched = await consumer.getmany(*unread, timeout_ms=POLL_MS, max_records=most)
        if fetched:
            if read := [record for records in fetched.values() for record in readable(records)]:
                yield read
            came = time.monotonic()
        elif time.monotonic() - came > stall_seconds:
            raise BrokerUnavailable(f"the broker gave no more records of {unread[0].topic} for {stall_seconds:g} s")


async def records_of(
    bootstrap: Bootstrap, *topics: str, stall_seconds: float = _STALL_SECONDS
) -> AsyncIterator[ConsumerRecord]:
    """Yield the records of topics up to their current end."""
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(None if stall_seconds == inf else stall_seconds):
                reader = await stack.enter_async_context(observer(bootstrap))
                ends = await end_offsets(reader, await partitions_of(reader, *topics))
        except TimeoutError:
            raise BrokerUnavailable(f"{bootstrap} did not answer in {stall_seconds:g} s") from None
        if ends:
            await reader.seek_to_beginning(*ends)
            async for records in read_until(reader, ends, stall_seconds=stall_seconds):
                for record in records:
                    if record.offset < ends[TopicPartition(record.topic, record.partition)]:
                        yield record


async def read_to_end(bootstrap: Bootstrap, topics: Iterable[str], timeout_seconds: float) -> list[ConsumerRecord]:
    names = list(topics)
    try:
        async with asyncio.timeout(timeout_seconds):
            return [record async for record in records_of(bootstrap, *names, stall_seconds=inf)]
    except (TimeoutError, OSError) as error:
        what = ", ".join(names)
        raise BrokerUnavailable(
            f"{what} could not be read from broker {bootstrap} within {timeout_seconds:g} s"
        ) from error


async def record_at(consumer: Any, topic: str, partition: int, offset: int) -> ConsumerRecord | None:
    tp = TopicPartition(topic, partition)
    if tp not in await partitions_of(consumer, topic):
        return None
    ends = await end_offsets(consumer, [tp])
    first = (await consumer.beginning_offsets([tp]))[tp]
    if not first <= offset < ends[tp]:
        return None
    consumer.seek(tp, offset)
    async for (record,) in read_until(consumer, ends, most=1):
        # Compaction or a transaction may leave a gap.
        return record if record.offset == offset else None
    return None


# A new topic is noticed within this time. A refresh costs the broker work.
_FOLLOWER_METADATA_AGE_MS = 15_000
_REQUEST_TIMEOUT_MS = 10_000
# The broker keeps tombstones for one day more.
_MOST_AWAY_SECONDS = TOMBSTONE_SECONDS - DAY_SECONDS

Fetched = Mapping[TopicPartition, Sequence[ConsumerRecord]]


@dataclass(eq=False, repr=False)
class Follower:
    """Passes the records of `topics` to `take`, from the beginning.

    Attributes:
        take: gets each fetch at least once, and again if it raises; empty after `poll_ms` without a record.
        resumes: continue at the last position after an outage.
        newest: records before the end at which to start.
        begin: called with the ends; returns the offsets to start at.
        complete: awaited after each fetch once the initial content is read.
        outdated: called before a restart from the beginning, when known records may be deleted.
        skipped: number of undecodable records or batches.
    """

    bootstrap: Bootstrap
    topics: Sequence[str]
    take: Callable[[Fetched], Awaitable[None]]
    _: KW_ONLY
    what: str
    fetch_wait_ms: int
    poll_ms: int = 1000
    most: int | None = None
    resumes: bool = True
    newest: int | None = None
    begin: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]] | None = None
    complete: Callable[[], Awaitable[None]] | None = None
    outdated: Callable[[], None] | None = None
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self.skipped = 0
        self.positions: dict[TopicPartition, int] = {}
        self._heard = self._answered = self.clock.now()
        self._first_ends: dict[TopicPartition, int] | None = None
        self._consumer: Any = None
        self._replaced = False

    @property
    def loaded(self) -> bool:
        ends = self._first_ends
        return ends is not None and not any(self._is_behind(part, end) for part, end in ends.items())

    @property
    def connected(self) -> bool:
        return self._consumer is not None

    @property
    def age_seconds(self) -> float:
        """Seconds since the broker's last answer for the longest waiting partition."""
        if (consumer := self._consumer) is not None:
            answered = [consumer.last_poll_timestamp(part) for part in consumer.assignment()]
            self._answered = min((ms / 1000 for ms in answered if ms), default=self._answered)
        return max(0.0, self.clock.now() - self._answered)

    async def run(self) -> None:
        """Follow until cancelled. An outage or failing `take` is logged once."""
        delays, reported = backoff(), False
        while True:
            followed_since = inf
            try:
                times: dict[str, Any] = {"fetch_max_wait_ms": self.fetch_wait_ms, "in_order": True}
                times |= {"metadata_max_age_ms": _FOLLOWER_METADATA_AGE_MS, "request_timeout_ms": _REQUEST_TIMEOUT_MS}
                async with connected(make_consumer(self.bootstrap, *self.topics, **times)) as consumer:
                    await self._seek(consumer)
                    followed_since = self.clock.monotonic()
                    self._consumer = consumer
                    await self._follow(consumer)
            except ConfigError as failure:  # it lasts until a person acts
                if not reported:
                    log.error("%s: %s", self.what, failure)
                    reported = True
            except Exception as failure:
                if self.clock.monotonic() - followed_since > LONGEST_DELAY_SECONDS:
                    delays, reported = backoff(), False  # a new outage
                if not reported:
                    at = named(self.bootstrap)
                    log.warning("%s cannot be followed on %s: %r; trying again", self.what, at, failure)
                    reported = True
            finally:
                self._consumer = None
            await asyncio.sleep(next(delays))

    async def caught_up(self, timeout_seconds: float | None) -> bool:
        """Wait for the current content. Return False on time-out."""
        try:
            async with asyncio.timeout(timeout_seconds):
                ends: dict[TopicPartition, int] | None = None
                while ends is None or any(self._is_behind(part, end) for part, end in ends.items()):
                    if ends is None and self._consumer is not None:
                        with contextlib.suppress(BrokerUnavailable, KafkaError, OSError):
                            ends = await self._present_ends(self._consumer)
                            continue
                    await asyncio.sleep(0.01)
        except TimeoutError:
            return False
        return True

    async def _present_ends(self, consumer: Any) -> dict[TopicPartition, int]:
        if isinstance(consumer, RelayConsumer):
            return await _ends(consumer)
        # On the follower's connection Kafka first answers the waiting fetch.
        async with observer(self.bootstrap) as asking:
            return await end_offsets(asking, consumer.assignment())

    def _is_behind(self, part: TopicPartition, end: int) -> bool:
        """`end` is a lower bound on tansu (see `end_offsets`)."""
        newer = self._consumer.last_stable_offset(part) if self._consumer is not None else None
        return self.positions.get(part, 0) < max(end, newer or 0)

    def _is_shorter(self, ends: Mapping[TopicPartition, int]) -> bool:
        return any(self.positions.get(part, 0) > end for part, end in ends.items())

    def _too_long_away(self) -> bool:
        return self.clock.now() - self._heard > _MOST_AWAY_SECONDS

    async def _seek(self, consumer: Any) -> None:
        if not self.resumes:
            self.positions.clear()
        if self.outdated is not None and self._too_long_away():
            self.positions.clear()
            self.outdated()
            self._heard = self.clock.now()
        ends = await _ends(consumer)
        if self.newest is not None or self._is_shorter(ends):
            # With a lower bound old records would be read twice.
            async with observer(self.bootstrap) as asking:
                ends = await end_offsets(asking, ends)
        if self.outdated is not None and self._is_shorter(ends):
            # All partitions were replaced, not only shorter ones.
            self.positions.clear()
            self._replaced, self._first_ends = True, None
        self._first_ends = ends if self._first_ends is None else self._first_ends
        if self.newest is not None:
            self.positions = {part: max(0, end - self.newest) for part, end in ends.items()}
            self.newest = None
        elif self.begin is not None and not self.positions:
            self.positions.update(self.begin(ends))
        for part, end in ends.items():
            position = self.positions.get(part, 0)
            if 0 < position <= end:
                consumer.seek(part, position)
            else:
                self.positions.pop(part, None)

    async def _follow(self, consumer: Any) -> None:
        idle_since = self.clock.monotonic()
        while True:
            fetched = await consumer.getmany(timeout_ms=self.poll_ms, max_records=self.most)
            check_place(consumer, self.bootstrap)
            if self.outdated is not None:
                if self._too_long_away():
                    raise BrokerUnavailable("the log was not read for days")
                if fetched and self._replaced:
                    self._replaced = False
                    self.outdated()  # old lore stays until the new log is filled
            read = {part: readable(records) for part, records in fetched.items()}
            await self.take({part: records for part, records in read.items() if records})
            self.skipped += sum(len(fetched[part]) - len(records) for part, records in read.items())
            self._heard = self.clock.now()
            for part, records in fetched.items():
                self.positions[part] = records[-1].offset + 1
            if self.complete is not None and self.loaded:
                await self.complete()
            await asyncio.sleep(0)  # fetched records return without yielding to the event loop
            if fetched:
                idle_since = self.clock.monotonic()
            elif not isinstance(consumer, RelayConsumer) and (
                self.clock.monotonic() - idle_since > _REQUEST_TIMEOUT_MS / 1000
            ):
                # The client hides a lost connection. End offsets then fail, and show a replaced log.
                idle_since = self.clock.monotonic()
                ends = await _ends(consumer)
                # See `end_offsets`.
                known = {part: max(end, consumer.last_stable_offset(part) or 0) for part, end in ends.items()}
                if self._is_shorter(known):
                    raise BrokerUnavailable("its log is shorter than before")


async def _ends(consumer: Any) -> dict[TopicPartition, int]:
    async with asyncio.timeout(_REQUEST_TIMEOUT_MS / 1000):
        ends: dict[TopicPartition, int] = await consumer.end_offsets(consumer.assignment())
        return ends
