"""Decode what anybody may have written: bytes that cannot be read raise msgspec.DecodeError, a ValueError.

msgspec itself also raises RecursionError for what is nested too deep, and UnicodeDecodeError for what is no UTF-8. A
follower of a topic that expects neither would meet the same record again after every restart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal, TypeVar, cast

import msgspec

__all__ = ["json_reader", "msgpack_reader"]

T = TypeVar("T")


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
