"""Define a stage: a function from a batch of Kafka records to its effects.

A stage decides and `streams.runtime.delivery` acts, so a stage also runs on a log in memory.
"""

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar, cast

import msgspec

from fleetlore.errors import InvalidEvent
from fleetlore.kafka.batches import Unreadable
from fleetlore.wire.decode import array_parts, json_reader
from fleetlore.wire.principals import Principals
from fleetlore.wire.topics import tenant_of
from sinks.producer import Outgoing

__all__ = [
    "DeadLetter", "Effects", "Outgoing", "Record", "Stage", "Store", "TopicPartition", "Values",
    "dead_letter", "readable", "yielding",
]  # fmt: skip

log = logging.getLogger(__name__)

T = TypeVar("T")

# Sessions or states between two turns of the event loop: a few milliseconds.
YIELD_EVERY = 16


class TopicPartition(NamedTuple):
    """A partition that equals the tuples of Faust and aiokafka."""

    topic: str
    partition: int


class Record(NamedTuple):
    """A Kafka record. `time`: `LogAppendTime` in seconds, or infinity if no broker has the record.

    The last header of a name counts. `unreadable` says why no stage gets the record.
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
    def of(cls, read: Any) -> Self:
        time = inf if read.timestamp is None else read.timestamp / 1000
        why = read.checksum if isinstance(read, Unreadable) else ""
        return cls(read.topic, read.partition, read.offset, read.key, read.value, dict(read.headers), time, why)

    @property
    def tenant(self) -> str:
        return tenant_of(self.topic)

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class DeadLetter(NamedTuple):
    record: Record
    value: bytes
    reason: str
    detail: str


_reported: set[tuple[str, int | None]] = set()


def dead_letter(record: Record, error: Exception, value: bytes | None = None) -> DeadLetter:
    """Make the dead letter of a record, or of one `value` in it.

    Errors other than `InvalidEvent` are our own defects, logged once for each line of code. A `MemoryError` is the
    machine's, and ends the worker.
    """
    if isinstance(error, MemoryError):
        raise error
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
    """The idempotent effects of a batch.

    `rows`: by collection, as `Store.resolve` named it before the stage read. `processed`: good events or values.
    `newest`, `oldest`: event times. `acknowledged`: called once the rows are; later batches do not wait.
    """

    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    outgoing: list[Outgoing] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    processed: int = 0
    newest: float = 0.0
    oldest: float = inf
    acknowledged: Callable[[], None] | None = None


class Store(Protocol):
    async def resolve(self, collection: str) -> str: ...

    async def upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None: ...

    async def get(self, collection: str, ids: Sequence[str], *fields: str) -> dict[str, dict[str, Any]]: ...

    def rows(self, collection: str, tenant: str, *fields: str, **equal: str) -> AsyncIterator[dict[str, Any]]: ...


class Stage(Protocol):
    """One step of the pipeline.

    `reads`: its topic, whose only reader it is, because there is one committed offset. `linger_seconds`: a record's
    longest wait for its batch. `principals`: keys that may sign its records, or None.
    """

    name: str
    reads: str
    principals: Principals | None = None
    linger_seconds: float = 0.003

    @property
    def holds(self) -> bool:
        """Whether effects of earlier batches wait. An empty batch flushes them."""
        return False

    async def process(self, batch: Sequence[Record]) -> Effects:
        """Return the effects of a batch. It may be empty if the stage `holds` effects.

        Bad data becomes a dead letter. A second call after `StoreUnavailable` returns the same effects.
        """
        ...

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        """Return how far `tp` may be committed once all before `next_offset` is processed."""
        return next_offset

    def close(self) -> None:
        """Cancel background work. The worker makes new stages for each assignment."""
        return None


class Values(Generic[T]):
    """Decodes our own topics' values. `rare`: tried second, as msgspec has no union of array and object."""

    def __init__(self, type: Any, rare: Any = None) -> None:
        self._read_all = json_reader(list[type])
        self._read_first = json_reader(type)
        self._read_rare = None if rare is None else json_reader(rare)

    def read(self, batch: Sequence[Record], effects: Effects) -> list[tuple[Record, T]]:
        values: list[tuple[Record, T]] = []
        for record in batch:
            try:
                values += [(record, value) for value in self._read_all(record.value or b"")]
            except Exception:
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
            parts = array_parts(record.value or b"")
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


def readable(value: bytes | None, read: Callable[[bytes], T]) -> Iterator[T]:
    """Yield the values of a record, without those that `read` refuses."""
    with suppress(InvalidEvent):
        for part in array_parts(value or b""):
            with suppress(ValueError):
                yield read(part)


async def yielding(values: Sequence[T]) -> AsyncIterator[T]:
    """Let the event loop run every `YIELD_EVERY` values: a batch takes 50 to 100 ms."""
    for number, value in enumerate(values, 1):
        yield value
        if number % YIELD_EVERY == 0:
            await asyncio.sleep(0)
