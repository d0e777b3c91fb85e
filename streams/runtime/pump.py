"""Fetch records with aiokafka and pass them to Faust's agents in whole batches.

Faust's own consumer makes an event of each record, which costs more than the stage's work. Each stage has a feed,
bounded in bytes: when full, it pauses its partitions until it is two fifths full.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from aiokafka import ConsumerRebalanceListener, ConsumerRecord, OffsetAndMetadata, errors
from aiokafka import TopicPartition as Asked

from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable
from fleetlore.kafka.client import ANSWER_SECONDS, backoff, connect, connected, disconnect, make_admin, make_consumer
from fleetlore.kafka.read import committed_offsets, end_offsets, observer
from streams.runtime.delivery import Lease
from streams.stage.base import Record, TopicPartition

__all__ = ["Pump"]

log = logging.getLogger(__name__)

# A record takes at least one of the feed's 1,024 places, so a feed holds 16 MiB or 1,024 small records.
_PLACE_BYTES, _FEED_PLACES, _BATCH_PLACES, _RESUME_PLACES = 16 * 1024, 1024, 512, 400
_MAX_FETCH_BYTES = 4 * 1024 * 1024
# Take all fetched records: the client discards those of a paused partition.
_POLL_MS = 1000
# A partition that is resumed or assigned is fetched only after the fetch that waits for the others.
_FETCH_WAIT_MS = 1_500
# A topic that was made anew is assigned after a refresh.
_METADATA_AGE_MS = 15_000
# Without the leave request, the next owner waits for this session's timeout.
_LEAVE_SECONDS = 3.0


class Batch(NamedTuple):
    generation: int
    records: list[Record]


class Feed:
    def __init__(self, channel: Any, topics: Iterable[str], linger_seconds: float) -> None:
        self.channel, self.topics, self.linger_seconds = channel, frozenset(topics), linger_seconds
        self.some, self.free = asyncio.Event(), asyncio.Event()
        self.free.set()
        self.clear()

    def clear(self) -> None:
        self._waiting: deque[tuple[int, ConsumerRecord]] = deque()
        self.places = 0
        self.some.clear()

    def put(self, records: Iterable[ConsumerRecord]) -> None:
        for record in records:
            self._waiting.append((places := 1 + len(record.value or b"") // _PLACE_BYTES, record))
            self.places += places
        self.some.set()

    def take(self) -> list[Record]:
        taken, least = [], self.places - _BATCH_PLACES
        while self._waiting and self.places > least:
            places, read = self._waiting.popleft()
            self.places -= places
            taken.append(Record.of(read))
        if not self._waiting:
            self.some.clear()
        return taken


class Pump(ConsumerRebalanceListener):  # type: ignore[misc,unused-ignore]  # aiokafka has no types
    """A group member that fills the feeds and reports to `owner` (`on_assigned`, `on_revoked`, …).

    `fetching`: False stops reading only. `generation`: grows at each assignment or revocation.
    """

    def __init__(self, settings: Settings, owner: Any, lease: Lease) -> None:
        self._settings, self._owner, self._lease = settings, owner, lease
        self.fetching, self.generation = True, 0
        self._begun = 0  # the generation whose positions were sought
        self._begun_at = 0.0
        self._member = False  # from an assignment to the end of the next revocation
        self._feeds: dict[str, Feed] = {}
        self._stopped: frozenset[str] = frozenset()
        self._consumer: Any = None
        self._failure: BaseException | None = None
        # By partition: the committed offset (or beginning), and the next to fetch.
        self._committed: dict[TopicPartition, int] = {}
        self._fetched: dict[TopicPartition, int] = {}
        self._ever_committed: set[TopicPartition] = set()
        self._partitions: dict[str, int] = {}  # of each topic
        self._committing = asyncio.Lock()
        self._asked = float("-inf")
        # Kafka's default of 3 s, or a sixth of a short session timeout.
        self._heartbeat_seconds = min(3.0, settings.session_timeout_seconds / 6)
        # A join request is answered when the last member has joined.
        self._request_seconds = settings.session_timeout_seconds + ANSWER_SECONDS

    def feed(self, channel: Any, topics: Iterable[str], linger_seconds: float) -> Feed:
        feed = Feed(channel, topics, linger_seconds)
        self._feeds |= dict.fromkeys(feed.topics, feed)
        return feed

    async def start(self) -> None:
        session_ms = int(1000 * self._settings.session_timeout_seconds)
        self._consumer = make_consumer(
            self._settings.cluster,
            group=self._settings.group,
            auto_offset_reset="none",  # `_begin` and `_out_of_range` seek instead
            fetch_max_wait_ms=min(_FETCH_WAIT_MS, self._settings.fetch_wait_ms),
            max_partition_fetch_bytes=_MAX_FETCH_BYTES,
            metadata_max_age_ms=_METADATA_AGE_MS,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=session_ms,
            heartbeat_interval_ms=int(1000 * self._heartbeat_seconds),
            request_timeout_ms=int(1000 * self._request_seconds),
        )
        await connect(self._consumer)
        self._join()

    def _join(self) -> None:
        self._consumer.subscribe(list(self._feeds), listener=self)

    async def stop(self) -> None:
        if self._consumer is not None:
            await disconnect(self._consumer, _LEAVE_SECONDS)

    async def run(self) -> None:
        await asyncio.gather(self._fill(), *(self._hand_over(feed) for feed in set(self._feeds.values())))

    async def _fill(self) -> None:
        while self.fetching:
            fetched: Mapping[Any, list[ConsumerRecord]] = {}
            try:
                if self._member and self._begun != self.generation:
                    await self._begin()
                fetched = await self._consumer.getmany(timeout_ms=_POLL_MS)
            except errors.OffsetOutOfRangeError as error:
                await self._out_of_range(error.args[0])
            except errors.NoOffsetForPartitionError:
                pass  # `_begin` seeks it
            if self._failure is not None:
                raise self._failure
            # Drop records fetched before a rebalance: they are read again from their positions.
            if self._begun == self.generation and self.fetching:
                for tp, records in fetched.items():
                    if tp.topic not in self._stopped:
                        self._fetched[tp] = records[-1].offset + 1
                        self._feeds[tp.topic].put(records)
                for feed in {self._feeds[tp.topic] for tp in fetched}:
                    if feed.places >= _FEED_PLACES:
                        self._consumer.pause(*self._of(feed.topics - self._stopped))
            await asyncio.sleep(0)  # the client returns fetched records without yielding

    async def _hand_over(self, feed: Feed) -> None:
        while True:
            await feed.some.wait()
            await feed.free.wait()
            if feed.places < _BATCH_PLACES:
                await asyncio.sleep(feed.linger_seconds)
            batch = Batch(self.generation, feed.take())
            if feed.places <= _RESUME_PLACES:
                self._consumer.resume(*self._of(feed.topics - self._stopped))
            if batch.records:
                feed.free.clear()
                await feed.channel.send(value=batch)

    def _of(self, topics: Collection[str]) -> list[Any]:
        return [tp for tp in self._consumer.assignment() if tp.topic in topics]

    async def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        self._forget()
        try:
            if self._member:
                await self._owner.on_revoked()
        except Exception as error:  # aiokafka would hide this error
            self._failure = error
        async with self._committing:
            self._member = False

    def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        self._forget()
        self._committed, self._stopped, self._member = {}, frozenset(), True

    def _forget(self) -> None:
        self.generation += 1
        self._fetched.clear()
        for feed in self._feeds.values():
            feed.clear()

    async def _begin(self) -> None:
        generation, positions = self.generation, dict[Any, int]()
        for pause in backoff():
            try:
                async with asyncio.timeout(ANSWER_SECONDS), connected(make_admin(self._settings.cluster)) as admin:
                    committed = await committed_offsets(admin, self._settings.group, self._consumer.assignment())
                    positions = {tp: at.offset for tp, at in committed.items()}
                    if new := [tp for tp, offset in positions.items() if offset < 0]:
                        positions |= await self._consumer.beginning_offsets(new)
                        self._report_made_anew(new)
                    break
            except (errors.KafkaError, OSError) as error:
                if isinstance(error, errors.GroupAuthorizationFailedError):
                    raise
                log.info("committed offsets are unknown: %r", error)
            await asyncio.sleep(pause)
            if generation != self.generation:
                return
        if generation != self.generation:
            return
        for tp, offset in positions.items():
            self._consumer.seek(tp, offset)
        self._committed = {TopicPartition(*tp): offset for tp, offset in positions.items()}
        self._asked = float("-inf")
        if await self.commit({}) and generation == self.generation:
            self._begun, self._begun_at = generation, time.time()
            await self._owner.on_assigned(self._committed.keys())

    def _report_made_anew(self, uncommitted: Collection[TopicPartition]) -> None:
        # The broker deletes commits with their topic.
        for tp in self._ever_committed.intersection(uncommitted):
            message = "%s[%d]: the topic was made anew. Records of the old one that no worker had come to are lost"
            log.critical(message, *tp)
        self._ever_committed.difference_update(uncommitted)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit offsets of assigned partitions. Return False if the group has rebalanced.

        The answer renews the lease, so the last commit is repeated after a heartbeat's time without one.
        """
        async with self._committing:
            if not self._member:
                return False
            asked = self._lease.now()
            if not offsets and asked - self._asked > self._heartbeat_seconds:
                offsets = dict(list(self._committed.items())[:1])
            mine = {}
            for tp in offsets.keys() & self._committed.keys():
                # Keep the first commit's count: a worker ends when partitions grow.
                count = len(self._consumer.partitions_for_topic(tp.topic) or ())
                mine[Asked(*tp)] = OffsetAndMetadata(offsets[tp], str(self._partitions.setdefault(tp.topic, count)))
            if not mine:
                return not offsets
            try:
                await self._consumer.commit(mine)
            except (errors.CommitFailedError, errors.IllegalStateError):
                return False
            self._asked = asked
            self._lease.renew(asked)
            self._committed |= {TopicPartition(*tp): at.offset for tp, at in mine.items()}
            self._ever_committed |= mine.keys()
            return True

    async def _out_of_range(self, asked: Mapping[Any, int]) -> None:
        try:
            begins = await self._consumer.beginning_offsets(list(asked))
            ends = await self._consumer.end_offsets(list(asked))
        except errors.KafkaTimeoutError:
            return  # the offset will be out of range again
        for tp, offset in asked.items():
            if self._begun != self.generation:
                return
            if offset < begins[tp]:
                self._owner.on_expired(TopicPartition(*tp), begins[tp] - offset)
                self._consumer.seek(tp, begins[tp])
            else:
                await self._owner.on_truncated({TopicPartition(*tp): max(0, offset - ends[tp])})

    async def read_anew(self, partitions: Collection[TopicPartition]) -> None:
        """Commit the beginning of partitions, and have the group rebalance."""
        try:
            await self.commit(await self._consumer.beginning_offsets([Asked(*tp) for tp in partitions]))
        finally:  # after a failure, the offset is out of range again
            self._join()

    def pause(self, topics: Collection[str]) -> None:
        self._stopped |= frozenset(topics)
        self._consumer.pause(*self._of(self._stopped))

    def paused(self) -> int:
        return sum(tp.topic not in self._stopped for tp in self._consumer.paused())

    async def lags(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Count each assigned partition's unprocessed records. Raises BrokerUnavailable: the client is stuck.

        Each fetch returns the partition's end. Without a fetch, another client asks. Transaction markers do not count.
        """
        consumer, found = self._consumer, dict[TopicPartition, int]()
        if self._begun != self.generation:
            return found
        paused, ends = consumer.paused(), dict[Any, int]()
        late = time.time() - 2 * self._request_seconds
        polled = {tp: (consumer.last_poll_timestamp(tp) or 0) / 1000 for tp in consumer.assignment() - paused}
        silent = {tp for tp, moment in polled.items() if max(self._begun_at, moment) < late}
        # A broker may be down, or a partition may have moved.
        with suppress(AssertionError, BrokerUnavailable, errors.KafkaError, OSError):
            if paused:
                ends = await consumer.end_offsets(paused)
            if silent:
                async with asyncio.timeout(ANSWER_SECONDS), observer(self._settings.cluster) as other:
                    ends |= await end_offsets(other, silent)
            for tp, committed in list(self._committed.items()):
                end = max(consumer.highwater(tp) or 0, ends.get(tp, 0))
                done = positions.get(tp, committed)
                if self._fetched.get(tp, 0) <= done < end:
                    # All fetched records are processed. Offsets that the client skipped are not records.
                    done = max(done, await consumer.position(tp))
                found[tp] = max(0, end - done)
        if stuck := [tp for tp in silent if self._fetched.get(tp, 0) < ends.get(tp, 0) and found.get(tp)]:
            raise BrokerUnavailable(f"the client has stopped reading {stuck[0].topic}[{stuck[0].partition}]")
        return found
