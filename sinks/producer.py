"""Send values and raw records to Kafka in whole batches, and wait for every acknowledgement."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self, TypeVar

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    PolicyViolationError,
    ProducerFenced,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
    UnknownProducerId,
    UnknownTopicOrPartitionError,
)
from aiokafka.producer.message_accumulator import BatchBuilder

from fleetlore.cluster import Bootstrap
from fleetlore.errors import BrokerUnavailable, ConfigError, RecordsRefused
from fleetlore.kafka.client import connect, disconnect, make_producer, no_broker
from fleetlore.wire.dead_letter import RawRecord
from fleetlore.wire.topics import TOPICS, partition_for, topic

__all__ = ["COMPACTED", "POSITION", "BatchProducer", "Outgoing", "json_arrays"]

# Header of a compacted topic's record: how far its writer had read the source topic.
POSITION = "fleetlore.position"
COMPACTED = frozenset(spec.name for spec in TOPICS if spec.compacted)
MAX_RECORD_BYTES = 512 * 1024
# Kafka's default limit for a message is 1 MiB.
_MAX_REQUEST_BYTES = 1_000_000
_DELIVERY_SECONDS = 30.0
# Kafka's codec number. Only arrays are compressed: agents read compacted topics and need no zstd package.
_ZSTD = 4

# Errors for a record that the broker will never accept.
_REFUSALS = (InvalidTimestampError, MessageSizeTooLargeError, PolicyViolationError, RecordListTooLargeError)

# Errors of a broker that lost its log, or of a batch behind a refused one. Later batches fail too.
_LOST_SEQUENCE = (
    InvalidProducerEpoch, InvalidProducerIdMapping, OutOfOrderSequenceNumber, ProducerFenced, UnknownProducerId,
)  # fmt: skip

_T = TypeVar("_T")
_Place = tuple[str, int]  # tenant, partition
_Headers = list[tuple[str, bytes | None]]
# Topic, partition, key, value, headers.
_Prepared = tuple[str, int, bytes | None, bytes | None, _Headers]


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A value for a topic.

    On a compacted topic `key` is the record's key, and a None value deletes it. Elsewhere `key` only picks the
    partition, and records hold a JSON array of values.
    """

    tenant: str
    topic: str
    key: str
    value: bytes | None


@dataclass(slots=True)
class _Batch:
    builder: BatchBuilder
    records: list[_Prepared] = field(default_factory=list)
    acknowledged: Any = None


@dataclass(eq=False, repr=False)
class BatchProducer:
    bootstrap: Bootstrap
    max_request_bytes: int = _MAX_REQUEST_BYTES
    _: KW_ONLY
    delivery_seconds: float = _DELIVERY_SECONDS
    check: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.delivery_seconds = min(self.delivery_seconds, _DELIVERY_SECONDS)
        self._producer: AIOKafkaProducer | None = None
        self._lost = False  # the broker rejects this producer's sequence
        self._replacing = asyncio.Lock()

    async def start(self) -> None:
        producer = make_producer(
            self.bootstrap,
            max_request_size=self.max_request_bytes,
            max_batch_size=_MAX_REQUEST_BYTES,
            request_timeout_ms=int(self.delivery_seconds * 1000),
        )
        try:
            await connect(producer)
        except KafkaError as error:
            raise no_broker(self.bootstrap, error) from error
        self._producer = producer

    async def stop(self) -> None:
        if self._producer is not None:
            # All acknowledgements were awaited, so a broken connection must not delay the exit.
            await disconnect(self._producer)
            self._producer = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def deliver(self, values: Sequence[Outgoing], positions: Mapping[_Place, int] = {}) -> None:
        """Send values and wait for every acknowledgement. `positions`: source offsets up to which they were made.

        On a compacted topic each value is a record; elsewhere values share records.
        """
        records: list[_Prepared] = []
        shared: dict[tuple[str, int], list[bytes]] = {}
        partitions: dict[str, int] = {}
        async with self._sending():
            for value in values:
                name = topic(value.tenant, value.topic)
                if name not in partitions:
                    partitions[name] = await self._partitions(name)
                partition = partition_for(value.key, partitions[name])
                if value.topic in COMPACTED:
                    position = positions.get((value.tenant, partition))
                    headers: _Headers = [] if position is None else [(POSITION, b"%d" % position)]
                    records.append((name, partition, value.key.encode(), value.value, headers))
                elif value.value is not None:
                    shared.setdefault((name, partition), []).append(value.value)
            for (name, partition), parts in shared.items():
                records.extend((name, partition, None, array, []) for array in json_arrays(parts))
            await self._send(records, compressed=shared.keys())

    async def send(self, records: Sequence[RawRecord]) -> None:
        async with self._sending():
            partitions = {each.topic: await self._partitions(each.topic) for each in records}
            await self._send(
                [
                    (each.topic, each.partition % partitions[each.topic], each.key, each.value, each.headers)
                    for each in records
                ]
            )

    @asynccontextmanager
    async def _sending(self) -> AsyncIterator[None]:
        async with self._replacing:
            if self._lost:
                await self.stop()
                await self.start()
                self._lost = False
        try:
            yield
        except (KafkaError, TimeoutError) as error:
            self._lost |= isinstance(error, _LOST_SEQUENCE)
            raise BrokerUnavailable(f"the broker at {self.bootstrap} did not take a batch: {error!r}") from error

    async def _send(self, records: Iterable[_Prepared], compressed: Collection[tuple[str, int]] = ()) -> None:
        """Send whole batches with one future each: aiokafka's `send` makes one a record."""
        producer = self._started()
        filling: dict[tuple[str, int], _Batch] = {}
        sent: list[_Batch] = []

        async def send(batch: _Batch) -> None:
            batch.builder.close()
            self.check()
            name, partition = batch.records[0][:2]
            batch.acknowledged = await producer.send_batch(batch.builder, name, partition=partition)
            sent.append(batch)

        for record in records:
            name, partition, key, value, headers = record
            place = name, partition
            while True:
                batch = filling.get(place) or _Batch(
                    BatchBuilder(_MAX_REQUEST_BYTES, _ZSTD) if place in compressed else producer.create_batch()
                )
                if batch.builder.append(timestamp=None, key=key, value=value, headers=headers) is not None:
                    batch.records.append(record)
                    filling[place] = batch
                    break
                await send(filling.pop(place))
        for batch in filling.values():
            await send(batch)
        if sent:
            waiting = asyncio.gather(*(each.acknowledged for each in sent), return_exceptions=True)
            await self._settle(sent, await asyncio.wait_for(waiting, self.delivery_seconds), compressed)

    async def _settle(
        self, sent: Sequence[_Batch], answers: Sequence[Any], compressed: Collection[tuple[str, int]]
    ) -> None:
        refused: list[_Prepared] = []
        errors = [each for each in answers if isinstance(each, BaseException)]
        for batch, answer in zip(sent, answers, strict=True):
            if isinstance(answer, TopicAuthorizationFailedError):
                name = batch.records[0][0]
                raise ConfigError(f"this process may not write to {name}; `fleetlore topics acls` prints what it needs")
            if isinstance(answer, _REFUSALS):
                refused += batch.records
            elif isinstance(answer, BaseException):
                raise answer
        if len(refused) == 1:
            raise RecordsRefused(((refused[0][0], refused[0][3] or b""),), repr(errors[0]))
        lost: list[tuple[str, bytes]] = []
        for record in refused:
            try:
                await self._send([record], compressed)
            except RecordsRefused as error:
                lost += error.values
        if lost:
            raise RecordsRefused(tuple(lost), repr(errors[0]))

    async def _partitions(self, name: str) -> int:
        producer = self._started()
        known = producer.client.cluster.partitions_for_topic(name)
        try:
            return len(known or await producer.partitions_for(name))
        except UnknownTopicOrPartitionError as error:
            why = f"it has no topic {name}; a worker of the tenant creates it"
            raise BrokerUnavailable(f"the broker at {self.bootstrap} did not take a batch: {why}") from error

    def _started(self) -> AIOKafkaProducer:
        if self._producer is None:
            raise BrokerUnavailable("the producer has not been started")
        return self._producer


def json_arrays(parts: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunked(parts, MAX_RECORD_BYTES + 1, lambda part: len(part) + 1):
        yield b"[" + b",".join(chunk) + b"]"


def chunked(values: Iterable[_T], limit: int, size: Callable[[_T], int]) -> Iterator[list[_T]]:
    """Yield the values in lists of at most `limit` in size, or of one value."""
    chunk: list[_T] = []
    total = 0
    for value in values:
        added = size(value)
        if chunk and total + added > limit:
            yield chunk
            chunk, total = [], 0
        chunk.append(value)
        total += added
    if chunk:
        yield chunk
