"""Make the dead-letter records of bad events, and decide which records are lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from fleetlore.errors import InvalidEvent
from fleetlore.wire.dead_letter import RawRecord, dead_letter
from fleetlore.wire.decode import read_json
from fleetlore.wire.principals import SIGNED_BY
from fleetlore.wire.topics import tenant_of, topic
from streams.stage.base import DeadLetter, Record, Stage, TopicPartition

# The emitter's limit of events a record. A record with more bad events becomes one dead letter, not half a million.
_MAX_PER_RECORD = 64


def is_lost(record: Record, dead_letters: Sequence[DeadLetter]) -> bool:
    """Return whether no event of a record is usable. It decodes the record, so call it only for records with dead
    letters.
    """
    value = record.value or b""
    if any(letter.value == value for letter in dead_letters):
        return True
    try:
        events = read_json(value)
    except msgspec.DecodeError:
        return True
    return not isinstance(events, list) or len(dead_letters) >= len(events)


def records_of(stage: Stage, dead_letters: Sequence[DeadLetter]) -> list[RawRecord]:
    by_record: dict[tuple[TopicPartition, int], list[DeadLetter]] = {}
    for letter in dead_letters:
        by_record.setdefault((letter.record.tp, letter.record.offset), []).append(letter)
    written: list[RawRecord] = []
    for each in by_record.values():
        if len(each) > _MAX_PER_RECORD:
            first = each[0]
            detail = f"{len(each)} bad events, of which the first: {first.detail}"
            each = [first._replace(value=first.record.value or b"", detail=detail)]
        written += [record_of(stage, letter) for letter in each]
    return written


def record_of(stage: Stage, letter: DeadLetter) -> RawRecord:
    record = letter.record
    return dead_letter(
        to=topic(tenant_of(record.topic), "dead-letters"),
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=letter.value,
        headers=_headers_of(stage, letter),
        whole=letter.value == (record.value or b""),
        stage=stage.name,
        reason=letter.reason,
        detail=letter.detail,
    )


def _headers_of(stage: Stage, letter: DeadLetter) -> Mapping[str, bytes | None]:
    """A signature is copied only for a signed record, because each part is signed anew."""
    record, value = letter.record, letter.record.value or b""
    if letter.value == value:
        return record.headers
    headers = {name: content for name, content in record.headers.items() if name != SIGNED_BY}
    if stage.principals is not None and letter.value in value:
        with suppress(InvalidEvent):
            headers[SIGNED_BY] = stage.principals.signed_again(record.headers, record.topic, value, letter.value)
    return headers
