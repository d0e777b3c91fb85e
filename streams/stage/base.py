"""Define a stage: a function from a batch of Kafka records to the effects that they have.

A stage decides and the delivery (`streams.runtime.delivery`) acts: it writes the rows, produces the records, waits
until both are acknowledged and only then commits. So a stage knows no broker: the same stage runs on Faust and on a log
in memory.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

import msgspec

from fleetlore.errors import InvalidEvent
from fleetlore.kafka.batches import Unreadable
from fleetlore.wire.decode import json_reader
from fleetlore.wire.principals import Principals

__all__ = [
    "DeadLetter",
    "Effects",
    "ListedStore",
    "Outgoing",
    "Record",
    "Stage",
    "Store",
    "TopicPartition",
    "Values",
    "dead_letter",
    "split",
    "yielding",
]

log = logging.getLogger(__name__)

T = TypeVar("T")

# Sessions to judge or states to write between two turns of the event loop: some milliseconds of work.
YIELD_EVERY = 16


class TopicPartition(NamedTuple):
    """One partition; equal to (and hashed like) the tuples of Faust and aiokafka."""

    topic: str
    partition: int


class Record(NamedTuple):
    """One Kafka record as it was read.

    Attributes:
        headers: a header may have no value, and of several with one name the last counts.
        time: when the broker appended it (`LogAppendTime`), in seconds since the Unix epoch: the same for every reader.
            Infinite where no broker has taken it.
        unreadable: why it could not be read; then it goes to no stage. Empty for every other record.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes | None]
    time: float = inf
    unreadable: str = ""

    @classmethod
    def of(cls, read: Any) -> Record:
        """What a client of aiokafka read."""
        time = inf if read.timestamp is None else read.timestamp / 1000
        why = read.checksum if isinstance(read, Unreadable) else ""
        return cls(read.topic, read.partition, read.offset, read.key, read.value, dict(read.headers), time, why)

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A value for a topic.

    On a compacted topic it becomes a record of its own under `key` (None deletes the key). On any other topic `key`
    only picks the partition, and the values of one partition travel as a JSON array in one record.
    """

    tenant: str
    topic: str
    key: str
    value: bytes | None


class DeadLetter(NamedTuple):
    """A value that can never be processed, and why."""

    record: Record
    value: bytes
    reason: str
    detail: str


_reported: set[tuple[str, int | None]] = set()


def dead_letter(record: Record, error: Exception, value: bytes | None = None) -> DeadLetter:
    """Make the dead letter of a record, or of one `value` in it, from what reading it has raised.

    Any error but an `InvalidEvent` is a defect of the code that reads. It becomes a dead letter too, because one record
    must not stop a worker. The log holds one traceback for each line of code that raises.
    """
    if not isinstance(error, InvalidEvent):
        raised = traceback.extract_tb(error.__traceback__)[-1]
        if (line := (raised.filename, raised.lineno)) not in _reported:
            _reported.add(line)
            place = f"{record.topic}[{record.partition}]@{record.offset}"
            log.error("%s cannot be read, a defect of fleetlore; it goes to the dead letters", place, exc_info=error)
        error = InvalidEvent("unreadable", repr(error))
    return DeadLetter(record, record.value or b"" if value is None else value, error.reason, error.detail)


@dataclass(slots=True)
class Effects:
    """The effects of a batch. Every one of them is idempotent.

    Attributes:
        rows: by collection, as `Store.resolve` named it before the stage read what it writes back; each row carries its
            `id`.
        outgoing: in the order in which the values must arrive within a partition.
        dead_letters: what could not be processed.
        processed: number of events (or values of a later topic) in the batch, without the bad ones.
        newest: event time of the newest of them, in seconds since the Unix epoch; 0 where there is none.
        oldest: event time of the oldest, from the first stage only; infinity where there is none.
        acknowledged: to be called once the rows are acknowledged. Where it is given, the next batches do not wait for
            them, and the stage's own `committable` says what must not be committed until then.
    """

    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    outgoing: list[Outgoing] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    processed: int = 0
    newest: float = 0.0
    oldest: float = inf
    acknowledged: Callable[[], None] | None = None


class Store(Protocol):
    """Rows by id. `sinks.milvus.MilvusStore` is the real store.

    It cannot list its rows: a stage that did so before its first batch would process nothing for minutes.
    """

    async def resolve(self, collection: str) -> str: ...

    async def upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None: ...

    async def delete(self, collection: str, ids: Sequence[str]) -> None: ...

    async def get(self, collection: str, ids: Sequence[str], *fields: str) -> dict[str, dict[str, Any]]: ...


class ListedStore(Store, Protocol):
    """A store that can list the rows of a tenant, for commands and for what an erasure needs."""

    def rows(self, collection: str, tenant: str, *fields: str, **equal: str) -> AsyncIterator[dict[str, Any]]: ...


class Stage(Protocol):
    """One step of the pipeline. A stage without state inherits all but `process`.

    Attributes:
        name: as in metrics.
        reads: the topic it reads, without tenant; a topic has one reader, because its committed offset is kept once.
        linger_seconds: how long a record may wait for others to be batched with it; short where an agent waits for the
            result.
        principals: who may sign what it reads; None where nobody has to.
    """

    name: str
    reads: str
    principals: Principals | None = None
    linger_seconds: float = 0.003

    @property
    def holds(self) -> bool:
        """Whether effects of earlier batches wait. They come with a later batch, at the latest with an empty one."""
        return False

    async def process(self, batch: Sequence[Record]) -> Effects:
        """Turn a batch into its effects. The batch is empty where no record came and the stage `holds` something.

        Bad data never raises: it becomes a dead letter. May raise `StoreUnavailable`, and then has to give the same
        effects when called again with the same batch.
        """
        ...

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        """Return up to which offset `tp` may be committed, with everything before `next_offset` processed."""
        return next_offset

    def forget(self) -> None:
        """Drop all state of the partitions: they were assigned anew."""
        return None


class Values(Generic[T]):
    """Decodes the values of one of the pipeline's own topics: a record holds one JSON value or an array of them.

    Args:
        rare: another type, tried where a value is not of the first: msgspec takes no union of an array and an object.
    """

    def __init__(self, type: Any, rare: Any = None) -> None:
        self._read_all = json_reader(list[type])
        self._read_first = json_reader(type)
        self._read_rare = None if rare is None else json_reader(rare)

    def read(self, batch: Sequence[Record], effects: Effects) -> list[tuple[Record, T]]:
        """Return every value of a batch; one that cannot be decoded becomes a dead letter."""
        values: list[tuple[Record, T]] = []
        for record in batch:
            try:
                values += [(record, value) for value in self._read_all(record.value or b"")]
            except Exception:  # the values one by one, for the reason
                values += self._read_each(record, effects)
        effects.processed += len(values)
        return values

    def _read_one(self, part: bytes) -> T:
        try:
            return cast(T, self._read_first(part))
        except msgspec.ValidationError as error:
            if self._read_rare is None:
                raise
            try:
                return cast(T, self._read_rare(part))
            except msgspec.ValidationError:
                raise error from None

    def _read_each(self, record: Record, effects: Effects) -> list[tuple[Record, T]]:
        values: list[tuple[Record, T]] = []
        try:
            parts = split(record.value or b"")
        except InvalidEvent as error:
            effects.dead_letters.append(dead_letter(record, error))
            return values
        for part in parts:
            try:
                values.append((record, self._read_one(part)))
            except msgspec.DecodeError as error:
                effects.dead_letters.append(dead_letter(record, InvalidEvent("wrong_shape", str(error)), part))
            except Exception as error:
                effects.dead_letters.append(dead_letter(record, error, part))
        return values


_split = json_reader(list[msgspec.Raw])


def split(value: bytes) -> list[bytes]:
    """Return the bytes of each value of an array; of anything else, itself.

    Raises:
        InvalidEvent: `empty` or `not_json`.
    """
    if not value:
        raise InvalidEvent("empty", "a record without a value")
    if value.lstrip()[:1] != b"[":
        return [value]
    try:
        return [bytes(part) for part in _split(value)]
    except msgspec.DecodeError as error:
        raise InvalidEvent("not_json", str(error)) from None


async def yielding(values: Sequence[T]) -> AsyncIterator[T]:
    """Yield the values, and give the event loop a turn now and then: a worker's stages share it.

    To judge a batch, or to write all patterns at once, takes 50 to 100 ms, for which no new failure may wait. Pass a
    copy: the other turn may be a rebalance, at which a stage drops its state.
    """
    for number, value in enumerate(values, 1):
        yield value
        if number % YIELD_EVERY == 0:
            await asyncio.sleep(0)
