"""Values of the pipeline's own topics: a record holds one JSON value or an array of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from fleetlore.errors import InvalidEvent
from streams.stage.base import DeadLetter, Effects, Record

T = TypeVar("T")


def dead_letter(record: Record, error: InvalidEvent, value: bytes | None = None) -> DeadLetter:
    """A dead letter for a record, or for one `value` out of it."""
    return DeadLetter(record, record.value or b"" if value is None else value, error.reason, error.detail)


class Values(Generic[T]):
    """Reads the values of one topic."""

    def __init__(self, type: Any) -> None:
        self._read_all = msgspec.json.Decoder(list[type]).decode
        self._read_one = msgspec.json.Decoder(type).decode

    def read(self, batch: Sequence[Record], effects: Effects) -> list[tuple[Record, T]]:
        """Every value of a batch; what cannot be read becomes a dead letter and the rest goes on."""
        values: list[tuple[Record, T]] = []
        for record in batch:
            try:
                values += [(record, value) for value in self._read_all(record.value or b"")]
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                values += self._read_each(record, effects)
        effects.processed += len(values)
        return values

    def _read_each(self, record: Record, effects: Effects) -> list[tuple[Record, T]]:
        values: list[tuple[Record, T]] = []
        try:
            parts = split(record.value or b"")
        except InvalidEvent as error:
            effects.dead_letters.append(dead_letter(record, error))
            return values
        for part in parts:
            try:
                values.append((record, self._read_one(part)))
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
                effects.dead_letters.append(dead_letter(record, InvalidEvent("wrong_shape", str(error)), part))
        return values


_split = msgspec.json.Decoder(list[msgspec.Raw]).decode


def split(value: bytes) -> list[bytes]:
    """The bytes of each value of an array; of anything else, itself.

    Raises:
        InvalidEvent: `empty` or `not_json`.
    """
    if not value:
        raise InvalidEvent("empty", "a record without a value")
    if value.lstrip()[:1] != b"[":
        return [value]
    try:
        return [bytes(part) for part in _split(value)]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidEvent("not_json", str(error)) from None
