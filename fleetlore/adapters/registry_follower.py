"""Follow a tenant's adapter topics once for all agents of an event loop.

A connection for each agent would cost each two wake-ups a second for a version that comes a few times a day, and a
version would be sent, parsed and kept once an agent: a thousand agents on two cores did nothing else. An agent that
joins late is given what was read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol
from weakref import WeakKeyDictionary

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from fleetlore.cluster import Bootstrap
from fleetlore.kafka.client import backoff, connected, make_producer
from fleetlore.kafka.follower import Fetched, Follower
from fleetlore.wire.topics import topic

log = logging.getLogger(__name__)

# At least: the embedded broker, which answers a waiting fetch late, would have a rollback there within a second.
# At least: the embedded broker, which answers a waiting fetch late, would have a rollback there within a second.
FETCH_WAIT_MS = 200
STOP_SECONDS = 5.0
# Weights, and manifests: the publisher keeps 32 versions of each adapter.
KEPT_VERSIONS = 128
# Agents that take a record before the loop may do something else: ~2 ms.
GIVEN_AT_ONCE = 16
TOPICS = ("adapters.weights", "adapters.manifests", "adapters.pointers")


class Subscriber(Protocol):
    """Is given the records."""

    async def take(self, name: str, key: bytes, value: bytes | None) -> None:
        """One record of the topic `name`."""

    async def turn(self) -> None:
        """All records that were there have been given; comes again at least every second."""


class RegistryFollower:
    """The topics of one tenant; use `shared_follower`. Survives broker outages."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        tenant: str,
        make_producer: Callable[[Bootstrap], AIOKafkaProducer] = make_producer,
        fetch_wait_ms: int = FETCH_WAIT_MS,
    ) -> None:
        self._bootstrap = bootstrap
        self._fetch_wait_ms = fetch_wait_ms
        self._tenant = tenant
        self._make_producer = make_producer
        self._topics = {topic(tenant, name): name for name in TOPICS}
        self._follower = self._new_follower()
        self._members: list[Subscriber] = []
        # Those of them that were given what was read before.
        self._subscribers: list[Subscriber] = []
        # Each in the order in which it came.
        self._kept: dict[str, dict[bytes, bytes]] = {name: {} for name in TOPICS}
        self._giving = asyncio.Lock()
        self._acks: deque[tuple[bytes, bytes]] = deque(maxlen=10_000)
        self._ack_delays = backoff()
        self._task: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._catching_up: asyncio.Task[bool] | None = None

    def _new_follower(self) -> Follower:
        # Always from the beginning: after a broker has lost its log, positions in the old one would hide a rollback.
        return Follower(
            self._bootstrap,
            tuple(self._topics),
            self._take,
            what="adapters",
            fetch_wait_ms=self._fetch_wait_ms,
            poll_ms=FETCH_WAIT_MS,
            resumes=False,
        )

    async def join(self, subscriber: Subscriber) -> None:
        """Give a subscriber what was read so far, and from now on what comes."""
        self._members.append(subscriber)
        if self._task is None:
            self._task = asyncio.create_task(self._follower.run(), name="fleetlore-adapters")
        async with self._giving:
            for name, records in self._kept.items():
                for key, value in records.items():
                    await subscriber.take(name, key, value)
            self._subscribers.append(subscriber)

    async def leave(self, subscriber: Subscriber) -> None:
        """Give it nothing any more; with the last one the connection ends."""
        for some in (self._members, self._subscribers):
            if subscriber in some:
                some.remove(subscriber)
        if not self._members and self._task is not None:
            tasks = [task for task in (self._task, self._sending, self._catching_up) if task is not None]
            self._task = self._sending = self._catching_up = None
            self._follower = self._new_follower()
            self._kept = {name: {} for name in TOPICS}
            for task in tasks:
                task.cancel()
            # A consumer on a broker that hangs may take its time to stop; an agent's exit must not wait for that.
            await asyncio.wait(tasks, timeout=STOP_SECONDS)

    def ack(self, key: str, document: dict[str, object]) -> None:
        """Send what an agent did with a version, once all agents have been given the record."""
        self._acks.append((key.encode(), orjson.dumps(document)))

    async def caught_up(self) -> None:
        """Wait until all that the topics held when this was first asked has been given."""
        if self._catching_up is None:
            self._catching_up = asyncio.create_task(self._follower.caught_up(None), name="fleetlore-adapters-caught-up")
        await asyncio.shield(self._catching_up)

    async def _take(self, fetched: Fetched) -> None:
        async with self._giving:
            for partition, records in fetched.items():
                for record in records:
                    await self._give(self._topics[partition.topic], record.key or b"", record.value)
            for subscriber in list(self._subscribers):
                await subscriber.turn()
        # Beside the records: after a revocation the pointer to what takes its place must not wait for a producer.
        if self._acks and (self._sending is None or self._sending.done()):
            self._sending = asyncio.create_task(self._send_acks(), name="fleetlore-acks")

    async def _give(self, name: str, key: bytes, value: bytes | None) -> None:
        kept = self._kept[name]
        if value is not None and kept.get(key) == value:
            return  # read again after a reconnect
        kept.pop(key, None)
        if value is not None:
            kept[key] = value
            # Revocations are among the pointers, and hold for ever.
            if len(kept) > KEPT_VERSIONS and name != "adapters.pointers":
                del kept[next(iter(kept))]
        for number, subscriber in enumerate(list(self._subscribers), 1):
            await subscriber.take(name, key, value)
            if number % GIVEN_AT_ONCE == 0:
                await asyncio.sleep(0)  # a thousand agents in one go would keep their loop from their actions

    async def _send_acks(self) -> None:
        some = list(self._acks)
        self._acks.clear()
        try:
            # A producer for the moment: acks are rare, and a standing connection is not.
            async with connected(self._make_producer(self._bootstrap)) as producer:
                name = topic(self._tenant, "adapters.acks")
                await asyncio.gather(*[await producer.send(name, value, key=key) for key, value in some])
        except (KafkaError, OSError) as error:
            log.info("acks of adapters not sent, they are sent later: %s", error)
            self._acks.extendleft(reversed(some))
            await asyncio.sleep(next(self._ack_delays))
        else:
            self._ack_delays = backoff()


_followers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[Bootstrap, str], RegistryFollower]] = (
    WeakKeyDictionary()
)


def shared_follower(bootstrap: Bootstrap, tenant: str, fetch_wait_ms: int = FETCH_WAIT_MS) -> RegistryFollower:
    """The follower that the agents of the running loop share."""
    followers = _followers.setdefault(asyncio.get_running_loop(), {})
    made = RegistryFollower(bootstrap, tenant, fetch_wait_ms=max(FETCH_WAIT_MS, fetch_wait_ms))
    return followers.setdefault((bootstrap, tenant), made)
