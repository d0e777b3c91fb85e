"""Replace a Kafka client at an agent that uses a relay: the same calls over HTTP.

Offsets are the log's, so an agent may continue at another relay.
"""

import asyncio
import random
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import msgspec
import orjson
from aiokafka import TopicPartition
from aiokafka.errors import MessageSizeTooLargeError
from msgspec import Meta

from fleetlore.cluster import Relay
from fleetlore.errors import BrokerUnavailable
from fleetlore.wire.decode import msgpack_reader
from fleetlore.wire.topics import topic

__all__ = ["LENGTH_BYTES", "LORE", "MSGPACK", "STREAM", "Followed", "Following", "RelayedRecord"]

# Topics that an agent follows. Those of adapters have a consumer of their own.
LORE = ("patterns", "items", "decisions")
# Below common proxy time-outs. Drawn, so that agents that came together do not ask again together.
_WAIT_SECONDS = 15.0, 25.0
# Seconds until a relay reports that the broker has not stored the events.
_STORE_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
# The server closes idle connections after 5 s.
_IDLE_SECONDS = 4.0
_FOLLOW = "/v1/native/follow"
_TOO_LARGE = (400, 413)
LENGTH_BYTES, MSGPACK, STREAM = 4, "application/msgpack", "application/octet-stream"


class RelayedRecord(NamedTuple):
    """A record of the log. `topic` has no tenant prefix."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes | None


# Offsets by partition. A stream keeps them, and a body of 4 MB holds a million.
_Positions = Annotated[dict[int, int], Meta(max_length=10_000)]


class Following(msgspec.Struct):
    """Asks for the ends of topics, or with `wait` seconds for their records from `positions` on.

    An agent of an earlier version waits for one answer. With `stream` there is one at once, and one after each change
    until that time is over. A relay of an earlier version knows no `stream`.
    """

    topics: tuple[str, ...]
    positions: Annotated[dict[str, _Positions], Meta(max_length=64)]
    wait: Annotated[float, Meta(ge=0)]
    stream: bool = False


class Followed(msgspec.Struct):
    """One answer, as msgpack. In a stream its length stands before it, in `LENGTH_BYTES` bytes."""

    ends: dict[str, dict[int, int]]
    records: list[RelayedRecord]


class _RelayClient:
    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._http: Any = None
        self._failed: type[Exception]

    async def start(self) -> None:
        import httpx2  # 5 MB, which agents of a broker save

        relay, self._failed = self._relay, httpx2.HTTPError
        headers = {"fleetlore-agent": relay.agent, "fleetlore-tenant": relay.tenant}
        headers |= {"fleetlore-token": relay.token} if relay.token else {}
        secure = ssl.create_default_context() if relay.address.startswith("https:") else False
        url, limits = "http://relay" if relay.socket else relay.address, httpx2.Limits(keepalive_expiry=_IDLE_SECONDS)
        # Requests to a relay are private, so ignore proxies.
        own = httpx2.AsyncHTTPTransport(verify=secure, uds=relay.socket or None, trust_env=False, limits=limits)
        self._http = httpx2.AsyncClient(base_url=url, headers=headers, transport=own, trust_env=False)

    async def stop(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def ask(self, path: str, content: bytes, seconds: float = 0.0, **query: str) -> bytes:
        try:
            answer = await self._http.post(path, content=content, params=query, timeout=seconds + _ANSWER_SECONDS)
        except self._failed as error:
            raise ConnectionError(f"the relay at {self._relay} does not answer: {error!r}") from None
        return self._accepted(answer)

    async def stream(self, path: str, content: bytes, seconds: float) -> AsyncIterator[bytes]:
        try:
            asked = self._http.stream("POST", path, content=content, timeout=seconds + _ANSWER_SECONDS)
            async with asked as answer:
                kind = answer.headers.get("content-type", "")
                if answer.status_code >= 300 or kind == MSGPACK:
                    await answer.aread()
                    yield self._accepted(answer)
                    return
                if kind != STREAM:
                    raise ConnectionError(f"what answers at {self._relay} is no relay: it sends {kind or 'no type'}")
                came = bytearray()
                async for chunk in answer.aiter_raw():
                    came += chunk
                    while len(came) >= (end := LENGTH_BYTES + int.from_bytes(came[:LENGTH_BYTES])):
                        yield bytes(came[LENGTH_BYTES:end])
                        del came[:end]
        except self._failed as error:
            raise ConnectionError(f"the relay at {self._relay} does not answer: {error!r}") from None

    def _accepted(self, answer: Any) -> bytes:
        body: bytes = answer.content
        if answer.status_code >= 300:
            why = body[:200].decode(errors="replace")
            with suppress(orjson.JSONDecodeError, KeyError, TypeError):
                why = str(orjson.loads(body)["detail"])
            raise _Refused(answer.status_code, f"the relay at {self._relay} refuses: {why}")
        return body


class _Refused(ConnectionError):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Batch:
    def __init__(self) -> None:
        self.values: list[bytes] = []

    def append(self, *, value: bytes, **_: object) -> bool:
        self.values.append(value)
        return True

    def close(self) -> None:
        """A batch needs no closing."""


class RelayProducer(_RelayClient):
    async def partitions_for(self, topic: str) -> set[int]:
        return {0}

    def create_batch(self) -> _Batch:
        return _Batch()

    async def send_batch(self, batch: _Batch, topic: str, *, partition: int) -> asyncio.Future[None]:
        """The future resolves once the broker has the events. It raises MessageSizeTooLargeError: the relay refuses an
        event as too large or invalid.
        """
        return asyncio.ensure_future(self._store(b"[%b]" % b",".join(value[1:-1] for value in batch.values)))

    async def send(self, topic: str, value: bytes, *, key: bytes) -> asyncio.Future[bytes]:
        path = f"/v1/native/records/{topic.split('.', 2)[2]}/{quote(key.decode(), safe='')}"
        return asyncio.ensure_future(self.ask(path, value, _STORE_SECONDS))

    async def _store(self, events: bytes) -> None:
        stored = False
        while not stored:
            try:
                answer = await self.ask("/v1/events", events, _STORE_SECONDS, wait=str(_STORE_SECONDS), whole="true")
            except _Refused as refusal:
                if refusal.status in _TOO_LARGE:
                    raise MessageSizeTooLargeError(str(refusal)) from None
                raise
            stored = orjson.loads(answer)["stored"]


class RelayConsumer(_RelayClient):
    def __init__(self, relay: Relay, topics: Sequence[str]) -> None:
        super().__init__(relay)
        self._names = {name: name.split(".", 2)[2] for name in topics}
        self._ends: dict[TopicPartition, int] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._came: deque[RelayedRecord] = deque()
        # One answer at a time, so that a slow agent slows the relay down.
        self._answers = asyncio.Queue[list[RelayedRecord] | Exception](1)
        self._reading: asyncio.Task[None] | None = None
        self._heard = 0.0

    async def start(self) -> None:
        await super().start()
        await self.end_offsets(())

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        await super().stop()

    def assignment(self) -> set[TopicPartition]:
        return set(self._ends)

    def assign(self, parts: Iterable[TopicPartition]) -> None:
        """A follower reads all partitions."""

    def last_stable_offset(self, part: TopicPartition) -> int | None:
        return self._ends.get(part)

    def last_poll_timestamp(self, part: TopicPartition) -> int:
        return int(self._heard * 1000)

    def seek(self, part: TopicPartition, offset: int) -> None:
        self._positions[part] = offset
        self._came.clear()
        if self._reading is not None:
            self._reading.cancel()
            self._reading, self._answers = None, asyncio.Queue(1)

    async def end_offsets(self, parts: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self._read(await self.ask(_FOLLOW, self._asked(0.0)))
        return dict(self._ends)

    async def getmany(
        self, *parts: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> Mapping[TopicPartition, list[RelayedRecord]]:
        if not self._came:
            if self._reading is None:
                self._reading = asyncio.create_task(self._read_all(self._answers), name="fleetlore-relay-follow")
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    answer = await self._answers.get()
            except TimeoutError:
                return {}
            if isinstance(answer, Exception):
                raise answer
            self._came.extend(answer)
        found: dict[TopicPartition, list[RelayedRecord]] = {}
        for _ in range(len(self._came) if max_records is None else min(max_records, len(self._came))):
            record = self._came.popleft()
            found.setdefault(self._part(record.topic, record.partition), []).append(record)
        return found

    async def _read_all(self, answers: asyncio.Queue[list[RelayedRecord] | Exception]) -> None:
        try:
            while True:
                wait = random.uniform(*_WAIT_SECONDS)
                async for body in self.stream(_FOLLOW, self._asked(wait), wait):
                    records = self._read(body)
                    if any(self._positions.get(part, 0) > end for part, end in self._ends.items()):
                        raise BrokerUnavailable("its log is shorter than before")
                    if records:
                        await answers.put(records)
        except Exception as error:
            await answers.put(error)

    def _asked(self, wait: float) -> bytes:
        positions: dict[str, dict[int, int]] = {}
        for part, offset in self._positions.items():
            positions.setdefault(self._names[part.topic], {})[part.partition] = offset
        return msgspec.msgpack.encode(Following(tuple(self._names.values()), positions, wait, stream=wait > 0))

    def _read(self, body: bytes) -> list[RelayedRecord]:
        answer = msgpack_reader(Followed)(body)
        self._heard = time.time()
        self._ends = {
            self._part(name, partition): end for name, each in answer.ends.items() for partition, end in each.items()
        }
        for each in answer.records:
            self._positions[self._part(each.topic, each.partition)] = each.offset + 1
        return answer.records

    def _part(self, name: str, partition: int) -> TopicPartition:
        return TopicPartition(topic(self._relay.tenant, name), partition)
