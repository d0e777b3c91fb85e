"""One reader of a tenant's adapter topics for all agents of an event loop.

A connection of its own for each agent would cost each of them two wake-ups a second for a version that comes a few times a day, and
a version would be sent, parsed and kept once an agent: a thousand agents on two cores did nothing else. No consumer
group: the compacted topics are read from the beginning, and who joins late is given what was read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Protocol
from weakref import WeakKeyDictionary

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from fleetlore.kafka.client import connect, disconnect
from fleetlore.wire.topics import topic

log = logging.getLogger(__name__)

FETCH_WAIT_MS = 200  # some brokers answer a waiting fetch late: a rollback must be there within a second
METADATA_AGE_MS = 5_000
LONGEST_BACKOFF_SECONDS = 10.0
STOP_SECONDS = 5.0
ACK_BACKOFF_SECONDS = 1.0
KEPT_VERSIONS = 64
GIVEN_AT_ONCE = 16  # agents that take a record before the loop may do something else: ~2 ms
TOPICS = ("adapters.weights", "adapters.manifests", "adapters.pointers")


class Follower(Protocol):
    """Who is given the records."""

    async def take(self, name: str, key: bytes, value: bytes | None) -> None:
        """One record of the topic `name`."""

    async def turn(self) -> None:
        """All records that were there have been given; comes again at least every second."""


class RegistryFollower:
    """The topics of one tenant; use `feed_of`. Survives broker outages."""

    def __init__(self, bootstrap: str, tenant: str) -> None:
        self._bootstrap = bootstrap
        self._tenant = tenant
        self._members: list[Follower] = []
        self._followers: list[Follower] = []  # those of them who were given what was read before
        self._kept: dict[str, dict[bytes, bytes]] = {name: {} for name in TOPICS}  # each in the order in which it came
        self._giving = asyncio.Lock()
        self._acks: deque[tuple[bytes, bytes]] = deque(maxlen=10_000)
        self._task: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self.caught_up = asyncio.Event()

    async def join(self, follower: Follower) -> None:
        """Give a follower what was read so far, and from now on what comes."""
        self._members.append(follower)
        if self._task is None:
            self._task = asyncio.create_task(self._follow(), name="fleetlore-adapters")
        async with self._giving:
            for name, records in self._kept.items():
                for key, value in records.items():
                    await follower.take(name, key, value)
            self._followers.append(follower)

    async def leave(self, follower: Follower) -> None:
        """Give it nothing any more; with the last one the connection ends."""
        for some in (self._members, self._followers):
            if follower in some:
                some.remove(follower)
        if not self._members and self._task is not None:
            tasks = [task for task in (self._task, self._sending) if task is not None]
            self._task = self._sending = None
            self.caught_up.clear()
            self._kept = {name: {} for name in TOPICS}
            for task in tasks:
                task.cancel()
            # A consumer on a broker that hangs may take its time to stop; an agent's exit must not wait for that.
            await asyncio.wait(tasks, timeout=STOP_SECONDS)

    def ack(self, agent: str, document: dict[str, object]) -> None:
        """Send what an agent did with a version, once all agents have been given the record."""
        self._acks.append((agent.encode(), orjson.dumps(document)))

    async def _follow(self) -> None:
        backoff = 0.2
        while True:
            try:
                await self._consume()
            except (KafkaError, OSError) as error:
                log.info("adapter topics unreachable, next try in %.1f s: %s", backoff, error)
                await asyncio.sleep(backoff)
                backoff = min(2 * backoff, LONGEST_BACKOFF_SECONDS)

    async def _consume(self) -> None:
        names = {topic(self._tenant, name): name for name in TOPICS}
        consumer = AIOKafkaConsumer(
            *names,
            bootstrap_servers=self._bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=FETCH_WAIT_MS,
            metadata_max_age_ms=METADATA_AGE_MS,
        )
        try:
            await connect(consumer)
            ends: dict[TopicPartition, int] = {}
            while True:
                batches = await consumer.getmany(timeout_ms=FETCH_WAIT_MS)
                async with self._giving:
                    for partition, records in batches.items():
                        for record in records:
                            await self._give(names[partition.topic], record.key or b"", record.value)
                    for follower in list(self._followers):
                        await follower.turn()
                if not self.caught_up.is_set():
                    ends = ends or await consumer.end_offsets(consumer.assignment())
                    positions = [await consumer.position(partition) >= end for partition, end in ends.items()]
                    if positions and all(positions):
                        self.caught_up.set()
                # Beside the records: after a revocation the pointer to what takes its place must not wait for a producer.
                if self._acks and (self._sending is None or self._sending.done()):
                    self._sending = asyncio.create_task(self._send_acks(), name="fleetlore-acks")
        finally:
            await disconnect(consumer)

    async def _give(self, name: str, key: bytes, value: bytes | None) -> None:
        kept = self._kept[name]
        if value is not None and kept.get(key) == value:
            return  # read again after a reconnect
        kept.pop(key, None)
        if value is not None:
            kept[key] = value
            if (
                len(kept) > KEPT_VERSIONS and name != "adapters.pointers"
            ):  # revocations are among those, and hold for ever
                del kept[next(iter(kept))]
        for number, follower in enumerate(list(self._followers), 1):
            await follower.take(name, key, value)
            if number % GIVEN_AT_ONCE == 0:
                await asyncio.sleep(0)  # a thousand agents in one go would keep their loop from their actions

    async def _send_acks(self) -> None:
        # A producer for the moment: acks are rare, and a standing connection is not.
        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, acks="all")
        some = list(self._acks)
        self._acks.clear()
        try:
            await connect(producer)
            name = topic(self._tenant, "adapters.acks")
            await asyncio.gather(*[await producer.send(name, value, key=key) for key, value in some])
        except (KafkaError, OSError) as error:
            log.info("acks of adapters not sent, next try in %.1f s: %s", ACK_BACKOFF_SECONDS, error)
            self._acks.extendleft(reversed(some))
            await asyncio.sleep(ACK_BACKOFF_SECONDS)
        finally:
            await disconnect(producer)


_feeds: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str], RegistryFollower]] = WeakKeyDictionary()


def feed_of(bootstrap: str, tenant: str) -> RegistryFollower:
    """The feed that the agents of the running loop share."""
    feeds = _feeds.setdefault(asyncio.get_running_loop(), {})
    return feeds.setdefault((bootstrap, tenant), RegistryFollower(bootstrap, tenant))
