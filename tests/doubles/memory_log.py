"""Keep a log in memory with the parts of a Kafka broker that fleetlore relies on.

It has topics with partitions, records with headers and end offsets. Groups commit offsets, and former members may not.
Records have a size limit. Retention and compaction leave gaps in the offsets. It raises aiokafka's errors. The suite in
`tests/contract` holds it to the same behaviour as a real broker.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from aiokafka.errors import CommitFailedError, MessageSizeTooLargeError

from fleetlore.clock import Clock, SystemClock
from fleetlore.wire.topics import MAX_MESSAGE_BYTES, partition_for

_Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record, as a consumer sees it. A value of None is a tombstone; `timestamp` is in milliseconds."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: _Headers = ()
    timestamp: int = 0


@dataclass(slots=True)
class _Partition:
    end: int = 0
    records: list[Record] = field(default_factory=list)


class InMemoryLog:
    """Topics are created at their first use with `default_partitions`, or by `create_topic`; `clock` stamps records."""

    def __init__(self, default_partitions: int = 1, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._default_partitions = default_partitions
        self._most_bytes: dict[str, int] = {}
        self._topics: dict[str, list[_Partition]] = {}
        self._committed: dict[str, dict[tuple[str, int], int]] = defaultdict(dict)
        self._generations: dict[str, int] = defaultdict(int)
        self._next_partition = 0

    def create_topic(self, topic: str, partitions: int, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        """Create a topic; one that exists stays as it is. A broker measures the bytes of the compressed batch."""
        if topic not in self._topics:
            self._topics[topic] = [_Partition() for _ in range(partitions)]
            self._most_bytes[topic] = max_message_bytes

    def partitions(self, topic: str) -> int:
        return len(self._partitions(topic))

    def append(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> Record:
        """Append a record. Without `partition` the key decides, as in any Kafka client; without a key, turn by turn."""
        given = tuple(headers)
        parts = [key or b"", value or b"", *(name.encode() + (value or b"") for name, value in given)]
        partitions = self._partitions(topic)
        if (size := sum(map(len, parts))) > (most := self._most_bytes[topic]):
            raise MessageSizeTooLargeError(f"{size} bytes are more than {most}")
        if partition is None and key is not None:
            partition = partition_for(key.decode("utf-8", "surrogateescape"), len(partitions))
        elif partition is None:
            partition = self._next_partition % len(partitions)
            self._next_partition += 1
        log = self._partition(topic, partition)
        record = Record(topic, partition, log.end, key, value, given, int(self._clock.now() * 1000))
        log.records.append(record)
        log.end += 1
        return record

    def read(self, topic: str, partition: int, offset: int = 0, limit: int | None = None) -> list[Record]:
        """Records from `offset` on, oldest first."""
        records = self._partition(topic, partition).records
        first = bisect_left(records, offset, key=attrgetter("offset"))
        return records[first : None if limit is None else first + limit]

    def read_all(self, topic: str) -> list[Record]:
        """All records, partition by partition."""
        return [record for partition in self._partitions(topic) for record in partition.records]

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset that the next record will get."""
        return self._partition(topic, partition).end

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete all records below `offset`, as retention does."""
        log = self._partition(topic, partition)
        log.records = [record for record in log.records if record.offset >= offset]

    def compact(self, topic: str) -> None:
        """Keep the newest record of each key and no tombstone, as compaction does once tombstones are old.

        The other records keep their offsets.
        """
        for log in self._partitions(topic):
            newest = {record.key: record.offset for record in log.records}
            log.records = [each for each in log.records if newest[each.key] == each.offset and each.value is not None]

    def join(self, group: str) -> int:
        """Become the member of a group that has all partitions; return its generation."""
        self._generations[group] += 1
        return self._generations[group]

    def generation(self, group: str) -> int:
        """The member's generation, or 0 if the group has no member."""
        return self._generations[group]

    def commit(self, group: str, topic: str, partition: int, offset: int, generation: int = 0) -> None:
        """Note that `group` has dealt with all below `offset`. Raises CommitFailedError if another has joined since."""
        if generation != self._generations[group]:
            raise CommitFailedError(f"{group} is at generation {self._generations[group]}, not {generation}")
        if not 0 <= offset <= self.end_offset(topic, partition):
            raise ValueError(f"offset {offset} is not in 0..{self.end_offset(topic, partition)}")
        self._committed[group][topic, partition] = offset

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        """Return the committed offset, or None if the group never committed."""
        return self._committed[group].get((topic, partition))

    def compacted(self, topic: str) -> dict[bytes, bytes]:
        """Return the newest value of each key without tombstones, like a reader of a compacted topic."""
        newest = {record.key: record.value for record in self.read_all(topic) if record.key is not None}
        return {key: value for key, value in newest.items() if value is not None}

    def _partitions(self, topic: str) -> list[_Partition]:
        self.create_topic(topic, self._default_partitions)
        return self._topics[topic]

    def _partition(self, topic: str, partition: int) -> _Partition:
        partitions = self._partitions(topic)
        if not 0 <= partition < len(partitions):
            raise ValueError(f"{topic} has no partition {partition}, only 0..{len(partitions) - 1}")
        return partitions[partition]
