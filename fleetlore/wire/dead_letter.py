"""Define dead letters: the untouched bytes of unprocessable records, with headers that name source and reason.

A letter keeps its record's key and, if it holds the whole record, headers. A mark, a second record, says that it was
sent back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

from fleetlore.wire.principals import SIGNED_BY

__all__ = [
    "RECORD_REFUSED", "REDRIVEN", "ROW_REFUSED", "UNREADABLE", "DeadLetterRecord", "Mark", "RawRecord", "dead_letter",
    "mark", "read_dead_letter",
]  # fmt: skip

_Headers = tuple[tuple[str, bytes | None], ...]

_PREFIX = "dlq."
# Times this record was sent back before.
REDRIVEN = "dlq.redriven"
_MARK = "dlq.mark"

# A row for the store and no record. All other reasons are those of `InvalidEvent`.
ROW_REFUSED = "row_refused"
RECORD_REFUSED = "record_refused"
# The Kafka client cannot read the record, or its whole batch: see `fleetlore.kafka.batches`.
UNREADABLE = "unreadable"

# The original is in the log: megabytes would only break the producer.
MAX_VALUE_BYTES = 256 * 1024
MAX_KEY_BYTES = 64 * 1024
MAX_HEADERS_BYTES = 64 * 1024
_HEADER_BYTES = 8
MAX_DETAIL = 500
# No partition and no offset has more digits.
_MAX_DIGITS = 18


class RawRecord(NamedTuple):
    """A record for a topic of dead letters, with the partition of its source."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRecord:
    """A dead letter as it lies on its topic.

    Attributes:
        place: its id, its own `PARTITION:OFFSET`.
        topic, partition, offset: of its source record.
        size, sha256: of the whole value.
        cut: which of `value`, `key` and `headers` are not whole.
    """

    place: str
    time: float
    topic: str
    partition: int
    offset: int
    stage: str
    reason: str
    detail: str
    key: bytes | None
    value: bytes
    size: int
    sha256: str
    cut: frozenset[str]
    redriven: int
    headers: _Headers

    @property
    def identity(self) -> tuple[str, int, int, str]:
        """Equal for letters that were written twice, by a crash between writing and committing."""
        return self.topic, self.partition, self.offset, self.sha256


class Mark(NamedTuple):
    place: str


def dead_letter(
    record: Any, value: bytes, headers: Mapping[str, bytes | None], *, to: str, stage: str, reason: str, detail: str
) -> RawRecord:
    """Return the letter for the topic `to`. Too large parts are cut and named in `dlq.cut`.

    `value`: the record's, or one event's out of it.
    """
    key, whole = record.key, value == (record.value or b"")
    kept = [
        (name, content)
        for name, content in headers.items()
        if (whole and not name.startswith(_PREFIX)) or name == SIGNED_BY
    ]
    # A client may set a header to null.
    size = sum(_HEADER_BYTES + len(name.encode()) + len(content or b"") for name, content in kept)
    kept = kept if size <= MAX_HEADERS_BYTES else []
    over = {"value": len(value) - MAX_VALUE_BYTES, "key": len(key or b"") - MAX_KEY_BYTES}
    over["headers"] = size - MAX_HEADERS_BYTES
    facts: dict[str, Any] = {name: getattr(record, name) for name in ("topic", "partition", "offset")}
    facts |= {"stage": stage, "reason": reason}
    facts |= {"detail": detail[:MAX_DETAIL], "bytes": len(value), "sha256": sha256(value).hexdigest()}
    facts |= {"cut": ",".join(name for name, more in over.items() if more > 0), "redriven": _count_redriven(headers)}
    said = [(f"{_PREFIX}{name}", str(fact).encode("utf-8", "replace")) for name, fact in facts.items()]
    kept_key = key if key is None else key[:MAX_KEY_BYTES]
    return RawRecord(to, record.partition, kept_key, value[:MAX_VALUE_BYTES], said + kept)


def mark(letter: DeadLetterRecord, to: str) -> RawRecord:
    partition = int(letter.place.partition(":")[0])
    return RawRecord(to, partition, None, b"", [(_MARK, letter.place.encode())])


def _count_redriven(headers: Mapping[str, bytes | None]) -> int:
    said = headers.get(REDRIVEN) or b""
    # `isdigit` of bytes knows the ten ASCII digits only.
    return int(said) if said.isdigit() and len(said) < 10 else 0


def read_dead_letter(record: Any) -> DeadLetterRecord | Mark | None:
    """Return None for a record that the pipeline did not write."""
    headers: _Headers = tuple(record.headers or ())
    said = {name: (content or b"").decode("utf-8", "replace") for name, content in headers if name.startswith(_PREFIX)}
    if _MARK in said:
        return Mark(said[_MARK])
    try:
        return DeadLetterRecord(
            place=f"{record.partition}:{record.offset}",
            time=record.timestamp / 1000,
            topic=said["dlq.topic"],
            partition=_number(said["dlq.partition"]),
            offset=_number(said["dlq.offset"]),
            stage=said["dlq.stage"],
            reason=said["dlq.reason"],
            detail=said["dlq.detail"],
            key=record.key,
            value=record.value or b"",
            size=_number(said["dlq.bytes"]),
            sha256=said["dlq.sha256"],
            cut=frozenset(filter(None, said.get("dlq.cut", "").split(","))),
            redriven=_count_redriven(dict(headers)),
            headers=tuple((name, content) for name, content in headers if not name.startswith(_PREFIX)),
        )
    except (KeyError, ValueError):
        return None


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > _MAX_DIGITS:
        raise ValueError(f"{text[:_MAX_DIGITS]!r} is no number of a record")
    return int(text)
