"""What a stage is: a function from a batch of Kafka records to the effects they shall have.

A stage decides and the delivery (`streams.runtime.delivery`) acts: it writes the rows, produces the records, waits until both
are acknowledged and only then commits. So a stage has no broker in it, and the same stage runs on Faust and on the
in-memory log of the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple, Protocol

import msgspec


class TopicPartition(NamedTuple):
    """One partition; equal to (and hashed like) the tuples of Faust and aiokafka."""

    topic: str
    partition: int


class Record(NamedTuple):
    """One Kafka record as it was read."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A value for a topic.

    On a compacted topic it becomes a record of its own under `key` (None deletes the key). On any other topic `key` only
    picks the partition, and the values of one partition travel as a JSON array in one record.
    """

    tenant: str
    topic: str
    key: str
    value: bytes | None


class DeadLetter(NamedTuple):
    """Something that can never be processed, and why."""

    record: Record
    value: bytes
    reason: str
    detail: str


@dataclass(slots=True)
class Effects:
    """All that a batch shall have done to the world. Every one of them is idempotent.

    Attributes:
        rows: by collection; each row carries its `id`.
        outgoing: in the order in which the values must arrive within a partition.
        dead_letters: what could not be processed.
        processed: how many events (or values of a later topic) the batch held, bad ones left out.
        newest: event time of the newest of them, in seconds since the Unix epoch; 0 where there is none.
        oldest: of the oldest event, of the first stage; infinity where there is none.
        acknowledged: to be called once the rows are. Where it is given, the next batches do not wait for them, and the stage
            itself says by `committable` what must not be committed until then.
    """

    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    outgoing: list[Outgoing] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    processed: int = 0
    newest: float = 0.0
    oldest: float = inf
    acknowledged: Callable[[], None] | None = None


class Stage(Protocol):
    """One step of the pipeline. A stage that remembers nothing inherits all but `process`.

    Attributes:
        name: of the stage, as in metrics.
        reads: the topic it reads, without tenant; a topic has one reader, because how far it is committed is kept once.
        linger_seconds: how long a record may wait for others to be worked on with it; short where somebody waits for what comes of it.
    """

    name: str
    reads: str
    linger_seconds: float = 0.003

    @property
    def holds(self) -> bool:
        """Whether effects of earlier batches are held back; they come with a later batch, at the latest with an empty one."""
        return False

    async def process(self, batch: Sequence[Record]) -> Effects:
        """Turn a batch into its effects. The batch is empty where nothing came and the stage `holds` something.

        Bad data never raises: it becomes a dead letter. May raise `StoreUnavailable`, and then has to give the same effects
        when called again with the same batch.
        """
        ...

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        """The offset up to which `tp` may be committed once everything before `next_offset` has been processed."""
        return next_offset

    def forget(self) -> None:
        """Partitions were handed out anew: drop what was remembered of the old ones."""
        return None
