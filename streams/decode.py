"""Values of the pipeline's own topics: a record holds one JSON value or an array of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import orjson

from fleetlore.errors import InvalidEvent
from streams.stage import DeadLetter, Effects, Record

T = TypeVar("T")


def dead_letter(record: Record, error: InvalidEvent, value: object = None) -> DeadLetter:
    """A dead letter for a record, or for one `value` out of it."""
    untouched = record.value or b""
    if value is not None:
        # What is nested too deeply to be written again is kept together with what lay beside it.
        with suppress(orjson.JSONEncodeError):
            untouched = orjson.dumps(value)
    return DeadLetter(record, untouched, error.reason, error.detail)


def decode_values(batch: Sequence[Record], parse: Callable[[Any], T], effects: Effects) -> list[tuple[Record, T]]:
    """Parse every value of a batch; what cannot be parsed becomes a dead letter and the rest goes on."""
    values: list[tuple[Record, T]] = []
    for record in batch:
        try:
            decoded = orjson.loads(record.value or b"")
        except orjson.JSONDecodeError as error:
            effects.dead_letters.append(dead_letter(record, InvalidEvent("not_json", str(error))))
            continue
        for value in decoded if isinstance(decoded, list) else (decoded,):
            try:
                values.append((record, parse(value)))
            except (InvalidEvent, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                invalid = error if isinstance(error, InvalidEvent) else InvalidEvent("wrong_shape", repr(error))
                effects.dead_letters.append(dead_letter(record, invalid, value))
    effects.processed += len(values)
    return values
