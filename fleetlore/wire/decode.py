"""Decode untrusted bytes and events. Bytes that cannot be read raise msgspec.DecodeError, a ValueError.

`json_reader` reads our own records, `read_json` others' without loss. `rewritten` edits parts of a text: encoding again
would change integers beyond 64 bits, half surrogate pairs, NaN and floats. Compressed bodies are unpacked up to a
limit: a few kB may expand to gigabytes.
"""

import json
import math
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec
from msgspec import Meta, field

from fleetlore.errors import InvalidEvent, ModelUnavailable
from fleetlore.wire import events as ev

__all__ = [
    "ENCODINGS", "ENDED", "FEEDBACK", "MAX_VALUES", "MESSAGE", "OUTCOME", "STARTED", "Data", "Incoming",
    "array_parts", "changed_texts", "encoding_of", "event_parts", "incoming", "json_reader", "latest_from",
    "mended_json", "msgpack_reader", "of_headers", "read_json", "refusal", "rewritten", "unpacked", "unpacked_zstd",
    "well_formed",
]  # fmt: skip

T = TypeVar("T")
# Python refuses to read an integer of more digits.
_MAX_DIGITS = 4300
_SYNTAX = (msgspec.DecodeError, UnicodeError, RecursionError)
#: The 20 million values of 64 MB of `[],` take 3 GB of memory, and 20 s of CPU.
MAX_VALUES = 1_000_000


def read_json(value: bytes | str, most: int = MAX_VALUES) -> Any:
    """Decode JSON of any maker, strict or not. Raises msgspec.DecodeError, also for more than `most` values.

    Integers keep their digits. Half a surrogate pair and bytes that are no UTF-8 become U+FFFD. NaN, Infinity and
    numbers beyond a double become texts. A byte order mark and raw control characters are allowed.
    """
    if len(value) > most:
        before = [value.count(each) for each in (",[{" if isinstance(value, str) else b",[{")]  # type: ignore[arg-type]
        if sum(before) > most:
            raise msgspec.DecodeError(f"JSON of more than {most} values is not read: send smaller batches")
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


def changed_texts(value: Any, change: Callable[[str], Any]) -> Any:
    """Return a copy of a JSON value with each text changed, and the names of members kept."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: changed_texts(member, change) for name, member in value.items()}
    return [changed_texts(member, change) for member in value] if isinstance(value, list) else value


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


_split = json_reader(list[msgspec.Raw])


def array_parts(value: bytes) -> list[bytes]:
    """Return each value's bytes of an array, or the value itself. Raises InvalidEvent."""
    if not value:
        raise InvalidEvent("empty", "a record without a value")
    if value.lstrip()[:1] != b"[":
        return [value]
    try:
        return [bytes(part) for part in _split(value)]
    except msgspec.DecodeError as error:
        raise InvalidEvent("not_json", str(error)) from None


def rewritten(given: bytes, changed: Any) -> bytes:
    """Return the JSON text `given` with the changes made to its value from `read_json`; unchanged if nested too deep.

    Members may be added and replaced; elements replaced, and added at one end of a list.
    """
    try:
        before = read_json(given)
    except msgspec.DecodeError:  # the caller had more of the stack left
        return given
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
# Each costs a copy of what follows.
_MOST_MEMBERS = 64
#: Encodings of a body over HTTP.
ENCODINGS = ("", "identity", "gzip", "x-gzip", "deflate", "zlib", "zstd")


def _deflated(packed: bytes, limit: int) -> bytes:
    """With or without zlib's header."""
    has_header = packed[:1] == b"\x78" and int.from_bytes(packed[:2], "big") % 31 == 0
    unpacking = zlib.decompressobj(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)
    found = unpacking.decompress(packed, limit + 1)
    if len(found) <= limit and not unpacking.eof:
        raise ValueError("it is cut off")
    return found


def _gunzipped(packed: bytes, limit: int) -> bytes:
    """Read members one after another. `GzipFile` takes ten seconds for a body of empty ones."""
    found, left = list[bytes](), limit + 1
    for _ in range(_MOST_MEMBERS):
        unpacking = zlib.decompressobj(_GZIP)
        found.append(unpacking.decompress(packed, left))
        left -= len(found[-1])
        if left and not unpacking.eof:
            raise ValueError("it is cut off")
        packed = unpacking.unused_data.lstrip(b"\0")
        if not left or not packed:
            return b"".join(found)
    raise ValueError(f"it has more than {_MOST_MEMBERS} members")


def encoding_of(headers: Mapping[str, str]) -> str:
    return headers.get("content-encoding", "").strip().lower()


def unpacked(packed: bytes, encoding: str, limit: int) -> bytes:
    """Return a body in one of `ENCODINGS`, cut if it has more than `limit` bytes.

    Raises ValueError: another encoding, or a damaged body.
    """
    if encoding not in ENCODINGS:
        raise ValueError(f"the encoding {encoding[:32]!r} is not read")
    if encoding in ("", "identity"):
        return packed
    if encoding == "zstd":
        return unpacked_zstd(packed, limit)
    try:
        return (_gunzipped if encoding.endswith("gzip") else _deflated)(packed, limit)
    except zlib.error as error:
        raise ValueError(str(error)) from None


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
    if not unpacking.eof or unpacking.unused_data:
        raise ValueError("it is cut off, or has several frames")
    return found


_Name = Annotated[str, Meta(min_length=1, max_length=ev.MAX_ID_LENGTH)]

STARTED, ACTION, OUTCOME, MESSAGE, ENDED, FEEDBACK = ev.EventType


class Data(msgspec.Struct, kw_only=True, gc=False):
    tool: _Name | None = field(default=None, name=ev.TOOL)
    arguments: Any = field(default=None, name=ev.ARGUMENTS)
    result: Any = field(default=None, name=ev.RESULT)
    error_type: str | None = field(default=None, name=ev.ERROR_TYPE)
    error_message: str | None = field(default=None, name=ev.ERROR_MESSAGE)
    duration: Any = field(default=None, name=ev.DURATION)
    advice: Any = field(default=None, name=ev.ADVICE)
    adapter: Any = field(default=None, name=ev.ADAPTER)
    withheld: Any = field(default=None, name=ev.WITHHELD)
    goal: str | None = field(default=None, name=ev.GOAL)
    task: str | None = field(default=None, name=ev.TASK)
    place: str | None = field(default=None, name=ev.PLACE)
    user: str | None = field(default=None, name=ev.USER)
    outcome: ev.Outcome = field(default="unknown", name=ev.OUTCOME)
    reward: float | None = field(default=None, name=ev.REWARD)
    role: str | None = field(default=None, name=ev.ROLE)
    content: str | None = field(default=None, name=ev.CONTENT)
    guard: str | None = field(default=None, name=ev.VIOLATION)


class Incoming(msgspec.Struct, kw_only=True, gc=False):
    specversion: Literal["1.0"]
    type: ev.EventType
    agent: _Name
    session: _Name
    sequence: Annotated[int, Meta(ge=0, le=ev.MAX_SEQUENCE)]
    time: Annotated[datetime, Meta(tz=True)]
    data: Data
    tenant: str | None = None


_read_event = json_reader(Incoming)
# Evidence is weighed by its age.
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()


def latest_from(now: float) -> datetime:
    """Return the latest time of an event that came at `now`, in Unix seconds."""
    return datetime.fromtimestamp(max(0.0, min(now, _LATEST)) + ev.MAX_FUTURE_SECONDS, UTC)


def event_parts(value: bytes, headers: Mapping[str, bytes | None]) -> list[tuple[bytes, bytes | dict[str, Any]]]:
    """Return each event's bytes, and what `incoming` reads. Raises InvalidEvent."""
    if not headers.get("ce_specversion"):
        return [(part, part) for part in array_parts(mended_json(value))]
    named = {name[3:]: raw for name, raw in headers.items() if raw is not None and name.startswith("ce_")}
    attributes = of_headers({name: raw.decode("utf-8", "replace") for name, raw in named.items()})
    try:
        return [(value, attributes | {"data": read_json(value)})]
    except msgspec.DecodeError as error:
        raise InvalidEvent("not_json", str(error)) from None


def of_headers(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a CloudEvent in binary mode."""
    sequence = attributes.get("sequence", "")
    if sequence.isdecimal() and len(sequence) <= len(str(ev.MAX_SEQUENCE)):
        return attributes | {"sequence": int(sequence)}
    return attributes


def incoming(given: bytes | Mapping[str, Any], tenant: str, latest: datetime) -> Incoming:
    """Return the event of a CloudEvent from a topic of `tenant`. Raises InvalidEvent."""
    try:
        event = _read_event(given) if isinstance(given, bytes) else msgspec.convert(given, Incoming)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None
    except msgspec.DecodeError as error:
        raise InvalidEvent("not_json", str(error)) from None
    if (found := refusal(event, tenant, latest)) is not None:
        raise found
    return event


def refusal(event: Incoming, tenant: str, latest: datetime) -> InvalidEvent | None:
    """Return why an event breaks the rules that its type does not cover, or None."""
    kind, tool = event.type, event.data.tool
    if event.tenant is not None and event.tenant != tenant:
        return InvalidEvent("foreign_tenant", f"the event claims tenant {event.tenant!r} on a topic of {tenant!r}")
    if not _EARLIEST <= event.time <= latest:
        if event.time > latest:
            return InvalidEvent("future_time", f"{event.time.isoformat()} is later than {latest.isoformat()}")
        return InvalidEvent("bad_field", f"{event.time.isoformat()} is before the year 1970")
    if tool is None and kind in (OUTCOME, ACTION):
        return InvalidEvent("missing_field", ev.TOOL)
    # The fast check refuses harmless characters, too, such as a no-break space.
    if not (event.agent.isprintable() and event.session.isprintable() and (tool is None or tool.isprintable())):
        for name in (event.agent, event.session, tool or ""):
            if ev.CONTROL.search(name):
                return InvalidEvent("control_characters", repr(name))
    return None


def _invalid(error: msgspec.ValidationError) -> InvalidEvent:
    text = str(error)
    said, at, field = text.rpartition(" - at `$.")
    if not at:
        absent, version = field.startswith("Object missing"), "`specversion`" in field
        return InvalidEvent("wrong_shape" if not absent else "unknown_version" if version else "missing_field", text)
    field = field.removesuffix("`")
    if field == "specversion":
        return InvalidEvent("unknown_version", text)
    if field == "tenant":
        return InvalidEvent("foreign_tenant", text)
    if said.endswith("of length >= 1") or (said.endswith("got `null`") and "." not in field):
        return InvalidEvent("missing_field", text)
    if field != "type":
        return InvalidEvent("bad_field", text)
    stem = said.removeprefix("Invalid enum value '").rpartition(".")[0]
    known = any(stem == name.rpartition(".")[0] for name in ev.EventType)
    return InvalidEvent("unknown_version" if known else "unknown_type", text)
