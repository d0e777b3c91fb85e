"""Read judgments from the records of the log."""

from __future__ import annotations

import logging

from aiokafka import ConsumerRecord

from fleetlore.errors import InvalidEvent
from fleetlore.wire.trajectory import Judgment
from streams.stage.base import split

log = logging.getLogger(__name__)


def judgments_of(record: ConsumerRecord) -> list[Judgment]:
    """Return the judgments of a record.

    Skips invalid values: a trainer must not stop for a fault of the stage before.
    """
    try:
        parts = split(record.value or b"")
    except InvalidEvent as error:
        log.warning("%s in %s[%d]@%d", error, record.topic, record.partition, record.offset)
        return []
    judged = []
    for part in parts:
        try:
            judged.append(Judgment.from_json(part))
        except ValueError as error:
            log.warning("no judgment in %s[%d]@%d: %s", record.topic, record.partition, record.offset, error)
    return judged
