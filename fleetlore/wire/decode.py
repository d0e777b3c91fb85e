"""Decode untrusted bytes. Those that cannot be read raise msgspec.DecodeError, a ValueError.

`json_reader` reads our own records, and `read_json` those of others without loss. `rewritten` changes a text in a few
places: encoding again would change integers beyond 64 bits, half surrogate pairs, NaN and floats. A compressed body is
unpacked up to a limit: a few kB may expand to gigabytes.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, Literal, TypeVar, cast

import msgspec

from fleetlore.errors import ModelUnavailable

__all__ = [
    "inflated", "json_reader", "mended_json", "msgpack_reader", "read_json", "rewritten", "unpacked_zstd",
    "well_formed",
]  # fmt: skip

T = TypeVar("T")
# Python refuses to read an integer of more digits.
_MAX_DIGITS = 4300
_SYNTAX = (msgspec.DecodeError, UnicodeError, RecursionError)


def read_json(value: bytes | str) -> Any:
    """Decode JSON of any maker, strict or not. Raises msgspec.DecodeError.

    Integers keep their digits. Half a surrogate pair and bytes that are no UTF-8 become U+FFFD. NaN, Infinity and
    numbers beyond a double become texts. A byte order mark and raw control characters are allowed.
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
    text = value if isinstance(value, str) else value.decode(json.detect_encoding(value), "replace")
    return text.removeprefix("\ufeff")


def mended_json(value: bytes) -> bytes:
    """Return JSON that strict readers take, or the bytes themselves if nothing helps."""
    try:
        msgspec.json.decode(value)
    except _SYNTAX:
        try:
            return msgspec.json.encode(read_json(value))
        except msgspec.DecodeError:
            pass
    return value


def well_formed(value: Any) -> Any:
    """Return a JSON value in which half a surrogate pair is U+FFFD."""
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
    return _reader("json", cast(Any, kind))


def msgpack_reader(kind: type[T]) -> Callable[[Any], T]:
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


def rewritten(given: bytes, changed: Any) -> bytes:
    """Return the JSON text `given` with the changes made to its value from `read_json`, or unchanged if nested too
    deep.

    Members of objects may be added and replaced; elements be replaced, and added at one end of a list.
    """
    before = read_json(given)
    with suppress(msgspec.DecodeError, UnicodeError, RecursionError):  # strict readers do not take it
        return msgspec.json.encode(_merged(msgspec.Raw(given), before, changed))
    with suppress(ValueError, RecursionError):
        members = json.loads(json_text(given), strict=False)
        return json.dumps(_merged(members, before, changed), separators=(",", ":")).encode()
    return given


def _merged(given: Any, before: Any, after: Any) -> Any:
    if before == after:
        return given
    if isinstance(before, dict) and isinstance(after, dict):
        members = msgspec.json.decode(given, type=dict[str, msgspec.Raw]) if isinstance(given, msgspec.Raw) else given
        names = {well_formed(name): name for name in members}
        return {
            names.get(name, name): _merged(members[names[name]], before[name], value) if name in before else value
            for name, value in after.items()
        }
    if isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        elements = msgspec.json.decode(given, type=list[msgspec.Raw]) if isinstance(given, msgspec.Raw) else given
        more = len(after) - len(before)
        start = more if before and before[0] != after[0] else 0
        kept = zip(elements, before, after[start:], strict=False)
        return [*after[:start], *(_merged(*each) for each in kept), *after[start + len(before) :]]
    return after


_GZIP = 16 + zlib.MAX_WBITS


def inflated(packed: bytes, limit: int, *, gzip: bool) -> bytes:
    """Return up to `limit` + 1 bytes of gzip or deflate, the latter with or without zlib's header."""
    has_header = packed[:1] == b"\x78" and int.from_bytes(packed[:2], "big") % 31 == 0
    unpacking = zlib.decompressobj(_GZIP if gzip else zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)
    try:
        found = unpacking.decompress(packed, limit + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(found) <= limit and not unpacking.eof:
        raise ValueError("it is cut off")
    return found


def unpacked_zstd(packed: bytes, limit: int) -> bytes:
    """Return more than `limit` bytes of what Zstandard packed, or all of it."""
    try:
        import zstandard
    except ImportError:
        raise ModelUnavailable("this is packed with Zstandard, which needs a package: pip install zstandard") from None
    try:
        with zstandard.ZstdDecompressor().stream_reader(packed) as stream:
            found = bytes(stream.read(limit + 1))
        if len(found) > limit:
            return found
        unpacking = zstandard.ZstdDecompressor().decompressobj()
        found = unpacking.decompress(packed)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
    if not unpacking.eof:
        raise ValueError("it is cut off")
    return found
