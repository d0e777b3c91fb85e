"""Decode untrusted bytes: those that cannot be read raise msgspec.DecodeError, a ValueError.

msgspec itself also raises RecursionError for values that are nested too deep, and UnicodeDecodeError for bytes that are
no UTF-8. A follower of a topic that expects neither would meet the same record again after every restart.

Our own records are read by `json_reader`. JSON that other makers wrote is read by `read_json`, which loses nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, TypeVar, cast

import msgspec

__all__ = ["json_reader", "json_text", "mended_json", "msgpack_reader", "read_json", "well_formed"]

T = TypeVar("T")
# Python refuses to read an integer of more digits.
_MAX_DIGITS = 4300
_SYNTAX = (msgspec.DecodeError, UnicodeError, RecursionError)


def read_json(value: bytes | str) -> Any:
    """Decode JSON of any maker, strict or not, to values that every stage takes.

    Integers keep all their digits. Half a surrogate pair becomes U+FFFD, and so do bytes that are no UTF-8. NaN,
    Infinity and numbers beyond a double become texts. A byte order mark and raw control characters are allowed.

    Raises:
        msgspec.DecodeError: it is no JSON, or nested too deep.
    """
    try:
        return msgspec.json.decode(value)
    except _SYNTAX:
        pass
    try:
        found = json.loads(json_text(value), strict=False, parse_constant=str, parse_float=_float, parse_int=_integer)
        return well_formed(found)
    except (ValueError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


def json_text(value: bytes | str) -> str:
    """Return the text of JSON in any of its encodings, without its byte order mark. Bytes outside of it are U+FFFD."""
    text = value if isinstance(value, str) else value.decode(json.detect_encoding(value), "replace")
    return text.removeprefix("\ufeff")


def mended_json(value: bytes) -> bytes:
    """The same value in JSON that strict readers take; the bytes themselves if they do, or if nothing helps."""
    try:
        msgspec.json.decode(value)
    except _SYNTAX:
        try:
            return msgspec.json.encode(read_json(value))
        except msgspec.DecodeError:
            pass
    return value


def well_formed(value: Any) -> Any:
    """A copy of a JSON value whose texts are valid Unicode: half a surrogate pair becomes U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {well_formed(name): well_formed(member) for name, member in value.items()}
    return [well_formed(member) for member in value] if isinstance(value, list) else value


def _float(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MAX_DIGITS else digits


def json_reader(kind: type[T]) -> Callable[[Any], T]:
    """Return a function that decodes JSON to a value of this type."""
    return _reader("json", cast(Any, kind))


def msgpack_reader(kind: type[T]) -> Callable[[Any], T]:
    """Return a function that decodes MessagePack to a value of this type."""
    return _reader("msgpack", cast(Any, kind))


@cache
def _reader(form: Literal["json", "msgpack"], kind: Any) -> Callable[[Any], Any]:
    decoder: Any = msgspec.json.Decoder(kind) if form == "json" else msgspec.msgpack.Decoder(kind)
    decode = decoder.decode

    def read(value: Any) -> Any:
        try:
            return decode(value)
        except (RecursionError, UnicodeDecodeError) as error:
            raise msgspec.DecodeError(str(error)) from None

    return read
