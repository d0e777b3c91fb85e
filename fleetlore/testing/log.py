"""Keep a log in memory with the parts of a Kafka broker that fleetlore relies on.

Topics with partitions, records with headers, offsets that a group commits, end offsets and a view of what compaction
would leave. The suite in `tests/contract` holds it to the same behaviour as a real broker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from fleetlore.wire.topics import partition_for

Headers = tuple[tuple[str, bytes], ...]


class Record(NamedTuple):
    """One record, as a consumer sees it. A value of None is a tombstone."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class InMemoryLog:
    """Topics are created at their first use with `default_partitions`, or by `create_topic`."""

    def __init__(self, default_partitions: int = 1) -> None:
        self._default_partitions = default_partitions
        self._topics: dict[str, list[list[Record]]] = {}
        self._committed: dict[str, dict[tuple[str, int], int]] = defaultdict(dict)
        self._next_partition = 0

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic; one that exists stays as it is."""
        if partitions < 1:
            raise ValueError(f"a topic has at least one partition, not {partitions}")
        self._topics.setdefault(topic, [[] for _ in range(partitions)])

    def topics(self) -> list[str]:
        return sorted(self._topics)

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        return len(self._partitions(topic))

    def append(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
    ) -> Record:
        """Append a record and return it with its offset.

        Without `partition` the key decides, by murmur2 as in any Kafka client; without a key, turn by turn.
        """
        if key is None and value is None:
            raise ValueError("a record needs a key or a value")
        partitions = self._partitions(topic)
        if partition is None and key is not None:
            partition = partition_for(key.decode("utf-8", "surrogateescape"), len(partitions))
        elif partition is None:
            partition = self._next_partition % len(partitions)
            self._next_partition += 1
        records = self._partition(topic, partition)
        record = Record(topic, partition, len(records), key, value, tuple(headers))
        records.append(record)
        return record

    def read(self, topic: str, partition: int, offset: int = 0, limit: int | None = None) -> list[Record]:
        """Records from `offset` on, oldest first; none at or behind the end."""
        if offset < 0:
            raise ValueError(f"an offset is not negative: {offset}")
        records = self._partition(topic, partition)
        return records[offset : None if limit is None else offset + limit]

    def read_all(self, topic: str) -> list[Record]:
        """All records, partition by partition."""
        return [record for partition in self._partitions(topic) for record in partition]

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset that the next record will get."""
        return len(self._partition(topic, partition))

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Note that `group` has dealt with everything below `offset`."""
        if not 0 <= offset <= self.end_offset(topic, partition):
            raise ValueError(f"offset {offset} is not in 0..{self.end_offset(topic, partition)}")
        self._committed[group][topic, partition] = offset

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        """The committed offset; None where the group never committed."""
        return self._committed[group].get((topic, partition))

    def compacted(self, topic: str) -> dict[bytes, bytes]:
        """What a reader of a compacted topic ends with: the newest value of each key, without those forgotten."""
        state: dict[bytes, bytes] = {}
        for record in self.read_all(topic):
            if record.key is None:
                continue
            if record.value is None:
                state.pop(record.key, None)
            else:
                state[record.key] = record.value
        return state

    def _partitions(self, topic: str) -> list[list[Record]]:
        self.create_topic(topic, self._default_partitions)
        return self._topics[topic]

    def _partition(self, topic: str, partition: int) -> list[Record]:
        partitions = self._partitions(topic)
        if not 0 <= partition < len(partitions):
            raise ValueError(f"{topic} has no partition {partition}, only 0..{len(partitions) - 1}")
        return partitions[partition]
