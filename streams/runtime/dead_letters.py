"""Which records of a batch are lost, what is written for their bad events, and how many letters there are."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from fleetlore.config import Settings
from fleetlore.kafka.offsets import end_offsets, observer, partitions_of
from fleetlore.wire.dead_letter import RawRecord, dead_letter
from fleetlore.wire.topics import tenant_of, topic
from streams.stage.base import DeadLetter, Record, Stage, TopicPartition

# The emitter puts no more events than these into a record. What holds more bad ones is buried whole, as one letter, or a
# record of a megabyte could make half a million of them.
MOST_LETTERS = 64


def is_lost(record: Record, letters: Sequence[DeadLetter]) -> bool:
    """Whether not one event of a record could be used. Only for records with letters, which are rare: it decodes again."""
    value = record.value or b""
    if any(letter.value == value for letter in letters):
        return True
    try:
        events = orjson.loads(value)
    except orjson.JSONDecodeError:
        return True
    return not isinstance(events, list) or len(letters) >= len(events)


def letters_of(stage: Stage, letters: Sequence[DeadLetter]) -> list[RawRecord]:
    """What to write for the bad events of a batch."""
    by_record: dict[tuple[TopicPartition, int], list[DeadLetter]] = {}
    for letter in letters:
        by_record.setdefault((letter.record.tp, letter.record.offset), []).append(letter)
    written: list[RawRecord] = []
    for each in by_record.values():
        if len(each) > MOST_LETTERS:
            first = each[0]
            detail = f"{len(each)} bad events, of which the first: {first.detail}"
            each = [first._replace(value=first.record.value or b"", detail=detail)]
        written += [letter_of(stage, letter) for letter in each]
    return written


def letter_of(stage: Stage, letter: DeadLetter) -> RawRecord:
    """What to write for one of them."""
    record = letter.record
    return dead_letter(
        to=topic(tenant_of(record.topic), "dead-letters"),
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=letter.value,
        headers=record.headers,
        whole=letter.value == (record.value or b""),
        stage=stage.name,
        reason=letter.reason,
        detail=letter.detail,
    )


async def count_dead_letters(settings: Settings, tenant: str) -> int:
    """Records that were ever written to the tenant's dead-letter topic, marks of what was sent back included.

    Raises:
        BrokerUnavailable: nobody answers there.
    """
    async with observer(settings.broker) as consumer:
        partitions = await partitions_of(consumer, topic(tenant, "dead-letters"))
        return sum((await end_offsets(consumer, partitions)).values())
