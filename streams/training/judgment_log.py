"""Read judgments from the log: those of a record, and the newest before an offset."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from aiokafka import ConsumerRecord, TopicPartition

from fleetlore.cluster import Bootstrap
from fleetlore.errors import InvalidEvent
from fleetlore.kafka.read import end_offsets, observer, read_until
from fleetlore.wire.adapter_manifest import Place
from fleetlore.wire.trajectory import Judgment
from streams.stage.base import split

log = logging.getLogger(__name__)


class Judged(NamedTuple):
    """A judged session and its position on `judgments`."""

    judgment: Judgment
    place: Place


def judgments_of(record: ConsumerRecord) -> list[Judged]:
    """Return the judgments of a record, each with its position.

    Skips invalid values: a trainer must not stop for a fault of the stage before.
    """
    try:
        parts = split(record.value or b"")
    except InvalidEvent as error:
        log.warning("%s in %s[%d]@%d", error, record.topic, record.partition, record.offset)
        return []
    judged = []
    for number, part in enumerate(parts):
        try:
            judged.append(Judged(Judgment.from_json(part), Place(record.partition, record.offset, number)))
        except ValueError as error:
            log.warning("no judgment in %s[%d]@%d: %s", record.topic, record.partition, record.offset, error)
    return judged


async def newest_before(broker: Bootstrap, offsets: Mapping[TopicPartition, int], most: int) -> list[Judged]:
    """Return the newest judgments before each partition's offset, at most `most` of each, in the order of the
    partition.

    Raises BrokerUnavailable.
    """
    async with observer(broker) as reader:
        ends = await end_offsets(reader, offsets)
        # A log that was created again may be shorter than the committed offset of the old one.
        until = {partition: min(offsets[partition], end) for partition, end in ends.items()}
        newest: dict[TopicPartition, deque[Judged]] = {}
        for partition, begin in (await reader.beginning_offsets(list(until))).items():
            newest[partition] = deque(maxlen=most)
            # A record holds at least one session.
            reader.seek(partition, max(begin, until[partition] - most))
        async for records in read_until(reader, until):
            for record in records:
                partition = TopicPartition(record.topic, record.partition)
                if record.offset < until[partition]:
                    newest[partition] += judgments_of(record)
    return [judged for _, of_partition in sorted(newest.items()) for judged in of_partition]
