"""Read the batches of a fetch and skip what cannot be decoded.

After a parser or codec error, aiokafka fetches the same batch for ever. So a `Consumer` returns an `Unreadable`
instead. A batch with a bad checksum is fetched again: the network may have damaged it. A codec's missing package is
this process' error: no record is skipped.
"""

import io
import logging
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from gzip import GzipFile
from types import FunctionType
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition, codec
from aiokafka.consumer.fetcher import Fetcher, PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.control_record import ControlRecord
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.util import decode_varint_py as decode_varint  # aiokafka's compiled variant reads beyond the end

from fleetlore.errors import ConfigError
from fleetlore.wire.topics import MAX_MESSAGE_BYTES

__all__ = ["Unreadable"]

log = logging.getLogger(__name__)

# Clients fill batches to 1 MB, some count packed bytes, and JSON packs 20 to 1.
MOST_BATCH_BYTES = 32 * MAX_MESSAGE_BYTES
# Memory of the records that a partition's fetch returns at once.
_MOST_FETCHED_BYTES = 8 * MAX_MESSAGE_BYTES
# Memory of an empty record.
_RECORD_BYTES = 512
_PREFIX = struct.Struct(">qi")
_MAGIC = 16
_ATTRIBUTES, _COUNT, _RECORDS = 21, 57, 61
_CODEC, _CODECS = 0x07, ("", "gzip", "snappy", "lz4", "zstd")
_XERIAL_MAGIC, _XERIAL_HEADER = b"\x82SNAPPY\0", 16
_COMMIT_MARKER = b"\0\0\0\1"
_corrupt: deque[int] = deque(maxlen=256)


class Unreadable(ConsumerRecord):  # type: ignore[misc,unused-ignore]  # aiokafka has no types
    """Replaces a record, or the last one of a batch, that cannot be decoded. `checksum`: the reason, because aiokafka
    passes this field on.
    """

    checksum: str


def readable(records: Iterable[ConsumerRecord]) -> list[ConsumerRecord]:
    """Return the readable records and log the others."""
    records = list(records)
    refused = [record for record in records if isinstance(record, Unreadable)]
    if not refused:
        return records
    first = refused[0]
    more = f", and {len(refused) - 1} more" if len(refused) > 1 else ""
    log.warning("%s[%d]@%d is skipped: %s%s", first.topic, first.partition, first.offset, first.checksum, more)
    return [record for record in records if not isinstance(record, Unreadable)]


class _Record(NamedTuple):
    offset: int
    timestamp: int
    timestamp_type: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    checksum: str | None = None


class _CodecMissing(Exception):
    pass


class _Batch:
    """`next_offset` is always above `base_offset`, so a reader advances."""

    is_control_batch = is_transactional = False
    producer_id: int | None = None

    def __init__(self, data: memoryview, base_offset: int) -> None:
        self._data, self._why = data, ""
        self._batch: Any = None
        self.base_offset, self.next_offset = base_offset, base_offset + 1
        try:
            if len(data) < _RECORDS or data[_MAGIC] < 2:
                raise ValueError(f"it has {len(data)} bytes, or the form of Kafka before 0.11")
            self._batch = DefaultRecordBatch(data)
            self.next_offset = max(self.next_offset, self._batch.next_offset)
            self.is_control_batch, self.is_transactional = self._batch.is_control_batch, self._batch.is_transactional
            self.producer_id = self._batch.producer_id
        except Exception as error:
            self._refuse(f"it is no batch of records: {error!r}")

    def _refuse(self, why: str) -> None:
        self._why, self.is_control_batch, self.is_transactional, self.producer_id = why, False, False, None

    def validate_crc(self) -> bool:
        """A batch that fails twice with the same bytes is refused elsewhere."""
        if not self._why and not self._batch.validate_crc():
            seen = zlib.crc32(self._data)
            if seen not in _corrupt:
                _corrupt.append(seen)
                raise CorruptRecordException(f"the checksum of the batch at {self.base_offset} is wrong")
            self._refuse("its checksum is wrong")
        return True

    def __next__(self) -> Any:
        """Return the marker of a control batch. An unreadable one ends no transaction."""
        try:
            marker = next(self._batch)
            ControlRecord.parse(marker.key)
            return marker
        except Exception:
            return _Record(self.base_offset, -1, None, _COMMIT_MARKER, None)

    def __iter__(self) -> Iterator[Any]:
        given, records = 0, None
        try:
            if self._why:
                raise ValueError(self._why)
            records = self._unpacked()
            for record in DefaultRecordBatch(records):
                if not self.base_offset <= record.offset < self.next_offset:
                    raise ValueError(f"offset {record.offset} is outside its batch")
                yield record
                given += 1
        except (_CodecMissing, MemoryError):
            raise
        except Exception as error:
            why = str(error) or repr(error)
        else:
            return
        # A suspended handler would keep the unpacked bytes alive in its traceback.
        if records is None:
            yield self._refused(f"the batch from {self.base_offset} to {self.next_offset - 1}: {why}")
        else:
            yield from self._one_by_one(memoryview(records)[_RECORDS:], given)

    def _refused(self, why: str, value: bytes | None = None) -> _Record:
        time = getattr(self._batch, "max_timestamp", -1)
        return _Record(self.next_offset - 1, time, 0, None, value, checksum=why)

    def _unpacked(self) -> bytes | memoryview:
        (count,) = struct.unpack_from(">i", self._data, _COUNT)
        room = MOST_BATCH_BYTES - _RECORD_BYTES * max(0, count)
        attributes = self._data[_ATTRIBUTES + 1]
        if room < 0:
            raise ValueError(f"{count} records are too many for one batch")
        if not attributes & _CODEC:
            return self._data
        header = bytearray(self._data[:_RECORDS])
        header[_ATTRIBUTES + 1] = attributes & ~_CODEC
        return bytes(header) + _unpack(attributes & _CODEC, bytes(self._data[_RECORDS:]), room)

    def _one_by_one(self, records: memoryview, given: int) -> Iterator[_Record]:
        """Records state their lengths, so bad ones can be skipped."""
        (count,) = struct.unpack_from(">i", self._data, _COUNT)
        start, after = 0, self.base_offset
        for number in range(count):
            try:
                length, begin = decode_varint(records, start)
                if not 0 <= length <= len(records) - begin:
                    raise ValueError(f"a length of {length} bytes where {len(records) - begin} are left")
            except Exception as error:
                why = f"the records from {after} to {self.next_offset - 1}: {error}"
                yield self._refused(why, bytes(records[start:]))
                return
            start = begin + length
            record = self._read(bytes(records[begin:start]), after)
            after = record.offset + 1
            if number >= given and record.offset < self.next_offset:
                yield record
        if start < len(records) and after < self.next_offset:
            yield self._refused(f"the records from {after} to {self.next_offset - 1}: the batch counts {count} records")

    def _read(self, body: bytes, least: int) -> _Record:
        batch, position, why = self._batch, 0, None

        def number() -> int:
            nonlocal position
            value, position = decode_varint(body, position)
            return int(value)

        def content() -> bytes | None:
            nonlocal position
            size = number()
            if size < 0:
                return None
            if size > len(body) - position:
                raise ValueError(f"a field of {size} bytes where {len(body) - position} are left")
            position += size
            return body[position - size : position]

        try:
            number()  # skip the unused attributes
            time = batch.max_timestamp if batch.timestamp_type else batch.first_timestamp + number()
            if batch.timestamp_type:
                number()
            offset = self.base_offset + number()
            if not least <= offset < self.next_offset:
                raise ValueError(f"offset {offset} is outside its batch")
            key, value, headers = content(), content(), []
            for _ in range(number()):
                name = content() or b""
                try:
                    headers.append((name.decode(), content()))
                except UnicodeDecodeError:
                    why = f"the name of a header is not UTF-8: {name[:100]!r}"
                    headers.append((name.decode(errors="backslashreplace"), content()))
            if position != len(body):
                raise ValueError(f"{len(body) - position} bytes are left behind its headers")
        except Exception as error:
            why = str(error) or repr(error)
            return _Record(least, batch.max_timestamp, batch.timestamp_type, None, body, checksum=why)
        return _Record(offset, time, batch.timestamp_type, key, value, headers, why)


class _Batches:
    def __init__(self, fetched: bytes) -> None:
        self._fetched, self._start = memoryview(fetched), 0

    def size_in_bytes(self) -> int:
        return len(self._fetched)

    def has_next(self) -> bool:
        """A fetch may cut its last batch."""
        start = self._start
        if len(self._fetched) - start < _PREFIX.size:
            return False
        self._base, length = _PREFIX.unpack_from(self._fetched, start)
        self._end = start + _PREFIX.size + max(0, length)
        return bool(self._end <= len(self._fetched))

    def next_batch(self) -> _Batch:
        batch = _Batch(self._fetched[self._start : self._end], self._base)
        self._start = self._end
        if self.has_next() and batch.base_offset < self._base:
            batch.next_offset = min(batch.next_offset, self._base)
        return batch


def _unpack(number: int, packed: bytes, room: int) -> bytes:
    name = _CODECS[number] if number < len(_CODECS) else f"number {number}"
    if name not in _CODECS:
        raise ValueError(f"there is no codec {name}")
    if not getattr(codec, f"has_{name}")():
        raise _CodecMissing(name)
    too_large = f"more than {room} bytes when it is unpacked by {name}"
    if name == "gzip":
        unpacked = GzipFile(fileobj=io.BytesIO(packed)).read(room + 1)
        if len(unpacked) > room:
            raise ValueError(too_large)
        return unpacked
    if name == "snappy":
        if _snappy_bytes(packed) > room:
            raise ValueError(too_large)
        return bytes(codec.snappy_decode(packed))
    unpack_into: Callable[[bytes, bytearray], int] = getattr(codec.cramjam, name).decompress_into
    # Most batches fit the smaller buffer, whose pages the system must clear.
    for size in sorted({min(room, 8 * len(packed) + 16 * 1024), room}):
        buffer = bytearray(size)
        try:
            return bytes(memoryview(buffer)[: unpack_into(packed, buffer)])
        except codec.cramjam.DecompressionError as error:
            failure = str(error)  # the error itself would form a cycle with the buffer
    raise ValueError(f"{too_large}, or damaged ({failure})")


def _snappy_bytes(packed: bytes) -> int:
    size_of: Callable[[bytes], int] = codec.cramjam.snappy.decompress_raw_len
    if not packed.startswith(_XERIAL_MAGIC):
        return size_of(packed)
    position, total = _XERIAL_HEADER, 0
    while position < len(packed):
        (length,) = struct.unpack_from(">i", packed, position)
        position += 4
        if length <= 0:  # aiokafka would read the same block for ever
            raise ValueError(f"a block of {length} bytes")
        total += size_of(packed[position : position + length])
        position += length
    return total


class _Records(PartitionRecords):  # type: ignore[misc,unused-ignore]
    def __init__(self, tp: TopicPartition, *settings: Any) -> None:
        super().__init__(tp, *settings)
        self._topic, self._left = tp.topic, _MOST_FETCHED_BYTES

    def __next__(self) -> ConsumerRecord:
        if self._left <= 0:
            raise StopIteration  # the client fetches the rest from `next_fetch_offset`
        try:
            record = super().__next__()
        except CorruptRecordException as error:
            # An error would lose other partitions' records, which `getmany` has taken.
            log.info("%s; it is fetched again", error)
            raise StopIteration from None
        except _CodecMissing as missing:
            raise ConfigError(
                f"{self._topic} holds records that are compressed with {missing}, which this installation cannot "
                "unpack, so it reads nothing behind them. Run `pip install 'fleetlore[codecs]'` from your index and "
                "start again"
            ) from None
        self._left -= _RECORD_BYTES + max(0, record.serialized_key_size) + max(0, record.serialized_value_size)
        return Unreadable(**record.__dict__) if isinstance(record.checksum, str) else record


def _with(function: Any, **names: Any) -> Any:
    """Copy a function of aiokafka with other classes under these global names."""
    copy = FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__)
    copy.__defaults__, copy.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return copy


class _Fetcher(Fetcher):  # type: ignore[misc,unused-ignore]
    _proc_fetch_request = _with(Fetcher._proc_fetch_request, MemoryRecords=_Batches, PartitionRecords=_Records)


class Consumer(AIOKafkaConsumer):  # type: ignore[misc,unused-ignore]
    start = _with(AIOKafkaConsumer.start, Fetcher=_Fetcher)


class InOrder(Consumer):
    """Fetches once all records were read.

    If a partition is read for more than a tenth of a second, a `Consumer` asks for the others alone. The broker holds
    that request until one of them has a new record.
    """

    start = _with(AIOKafkaConsumer.start, Fetcher=partial(_Fetcher, prefetch_backoff=60.0))
