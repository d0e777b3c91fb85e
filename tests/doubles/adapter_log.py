"""The adapter topics of a tenant as a test writes them, and what agents answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from fleetlore.adapters.follower import AdapterFollower
from fleetlore.adapters.signatures import PublicKeys
from fleetlore.kafka.read import Fetched
from fleetlore.wire.topics import topic
from tests.doubles.connections import ONE_SERVER

TENANT = "acme"


class AdapterLog:
    """Gives feeds that read what is written here, and keeps their acks. `away`: starts of a producer that fail."""

    def __init__(self) -> None:
        self.acks: list[tuple[bytes, bytes]] = []
        self.away = 0
        self._end = 0
        self.followed = 0
        self._takers: list[Callable[[Fetched], Awaitable[None]]] = []
        self._complete: Callable[[], Awaitable[None]]

    def feed(self, trusted: PublicKeys, state_dir: str = "") -> AdapterFollower:
        make_producer: Any = lambda _: _Producer(self)  # noqa: E731
        return AdapterFollower(
            "nowhere:1", TENANT, trusted, state_dir, make_producer=make_producer, make_follower=self._follower
        )

    async def write(self, *records: tuple[bytes, bytes | None]) -> None:
        """Let the newest feed read these, each in a separate fetch that ends the log."""
        for record in records:
            await self._read(record)
            await self._complete()

    async def catch_up(self, *records: tuple[bytes, bytes | None]) -> None:
        """Let the newest feed read these as a log that was there before it; only the last one ends it."""
        for record in records:
            await self._read(record)
        await self._complete()

    async def reread(self, *records: tuple[bytes, bytes | None]) -> None:
        """Let the newest feed read the log from its beginning, as after a reconnect."""
        self._end = 0
        await self.catch_up(*records)

    async def _read(self, read: tuple[bytes, bytes | None]) -> None:
        key, value = read
        part = TopicPartition(topic(TENANT, "adapters"), 0)
        record = ConsumerRecord(part.topic, 0, self._end, 0, 0, key, value, 0, len(key), len(value or b""), ())
        self._end += 1
        await self._takers[-1]({part: [record]})

    async def pause(self) -> None:
        """A fetch that brings nothing."""
        await self._takers[-1]({})

    def _follower(
        self,
        bootstrap: object,
        topics: object,
        take: Callable[[Fetched], Awaitable[None]],
        *,
        complete: Callable[[], Awaitable[None]],
        **_: Any,
    ) -> Any:
        self._takers.append(take)
        self._end = 0
        self._complete = complete
        return _Follower(self)


class _Follower:
    def __init__(self, log: AdapterLog) -> None:
        self.log = log

    async def run(self) -> None:
        self.log.followed += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.log.followed -= 1


class _Producer:
    client = ONE_SERVER

    def __init__(self, log: AdapterLog) -> None:
        self.log = log

    async def start(self) -> None:
        if self.log.away > 0:
            self.log.away -= 1
            raise KafkaError("nobody there")

    async def send(self, name: str, value: bytes, key: bytes) -> asyncio.Future[None]:
        self.log.acks.append((key, value))
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def stop(self) -> None:
        pass
