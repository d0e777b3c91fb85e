"""Read messages of protobuf without generated code."""

from collections.abc import Iterator
from typing import Any

__all__ = ["Fields", "ProtobufReader"]

# A message's fields by number: the name in JSON, and how it is read. A list holds the fields of a repeated message.
Fields = dict[int, tuple[str, Any]]

_NO_FIELD = ("", None)
# Wire types.
_VARINT, _SIZED, _FIXED = 0, 2, {1: 8, 5: 4}
_MAX_VARINT_BYTES = 10


class ProtobufReader:
    """Reads at most `max_fields` fields: an empty message takes 300 bytes of memory."""

    def __init__(self, max_fields: int) -> None:
        self._max_fields = self._left = max_fields

    def parts(self, message: bytes, number: int) -> Iterator[bytes]:
        for found, value in self._fields(message, range(len(message))):
            if found == number and isinstance(value, range):
                yield message[value.start : value.stop]

    def read(self, message: bytes, fields: Fields) -> dict[str, Any]:
        return self._read(message, fields, range(len(message)))

    def _read(self, message: bytes, fields: Fields, part: range) -> dict[str, Any]:
        # Messages within messages are not copied: a thousand levels would take a thousand times the body's memory.
        found: dict[str, Any] = {}
        for number, value in self._fields(message, part):
            name, kind = fields.get(number, _NO_FIELD)
            if isinstance(kind, list):
                found.setdefault(name, []).append(self._read(message, kind[0], value))
            elif isinstance(kind, dict):
                found[name] = self._read(message, kind, value)
            elif kind is not None:
                found[name] = kind(value if isinstance(value, int) else message[value.start : value.stop])
        return found

    def _fields(self, message: bytes, part: range) -> Iterator[tuple[int, Any]]:
        """Yield each field's number with its value, or the range of its bytes."""
        place, end = part.start, part.stop
        while place < end:
            self._left -= 1
            if self._left < 0:
                raise ValueError(f"an export of more than {self._max_fields} values is not read: send smaller batches")
            tag, place = _varint(message, place)
            kind, size = tag & 7, _FIXED.get(tag & 7)
            if size is None:
                size, place = _varint(message, place)
            if kind == _VARINT:
                yield tag >> 3, size
                continue
            if kind not in (_SIZED, *_FIXED) or place + size > end:
                raise ValueError("a message is cut off or of an unknown kind")
            yield tag >> 3, range(place, place + size)
            place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    if place < len(message) and message[place] < 128:
        return message[place], place + 1
    value = 0
    for number, byte in enumerate(message[place : place + _MAX_VARINT_BYTES]):
        value |= (byte & 127) << 7 * number
        if byte < 128:
            return value & (2**64 - 1), place + number + 1
    raise ValueError("a number is cut off")
