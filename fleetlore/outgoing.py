"""Events as they leave the process: in JSON, secrets masked, small enough for a record.

In two steps. `encode` runs when the agent emits: it takes a copy, so that the agent may change its data at once. `mask` runs
when a record is made: one look at the bytes of all its events tells which few of them are worth a look of their own.

An event is without its closing brace until it lies in a record: so a record is joined in one go.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import Any

import orjson

from fleetlore.events import Event, cloudevent_head
from fleetlore.records import MAX_BYTES
from fleetlore.redaction import may_hold_secret, redact_value

__all__ = ["encode", "encode_event", "mask", "record"]

_LARGEST_EVENT = MAX_BYTES - 2  # the brackets of the record's array
_PLAIN = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


def encode(event: Event) -> tuple[bytes, bytes]:
    """The event in JSON, not yet masked, in two parts: all before its data, and its data.

    Raises:
        Exception: of whatever kind; a time that is no time, a name that is no text.
    """
    head = cloudevent_head(event)
    try:
        data = orjson.dumps(event.data, option=_PLAIN)
    except TypeError:
        # No JSON types: also integers of more than 64 bits, keys that are no strings, lone surrogates, cycles.
        data = _dump(redact_value(event.data))
    if len(head) + len(data) >= _LARGEST_EVENT:
        return head, _masked(head, data)  # masked before it is cut: half a secret is not recognised
    return head, data


def mask(heads: Sequence[bytes], datas: Sequence[bytes]) -> list[bytes]:
    """Events, their secrets masked; longer texts of an event that is too large are cut with a visible mark.

    Args:
        heads, datas: the two parts of each event, as `encode` gave them.
    """
    masked = list(datas)
    for index in may_hold_secret(datas):
        masked[index] = _masked(heads[index], datas[index])
    return list(map(add, heads, masked))


def record(events: Sequence[bytes]) -> bytes:
    """Value of a record that holds the masked events."""
    return b"[%b}]" % b"},".join(events)


def encode_event(event: Event) -> bytes:
    """One event, masked and complete."""
    head, data = encode(event)
    return mask([head], [data])[0] + b"}"


def _masked(head: bytes, data: bytes) -> bytes:
    value: dict[str, Any] = redact_value(orjson.loads(data))
    data = _dump(value)
    limit = MAX_BYTES // 2
    while len(head) + len(data) >= _LARGEST_EVENT and limit:
        limit //= 2
        data = _dump({name: _cut(member, limit) for name, member in value.items()})
    return data


def _dump(data: Any) -> bytes:
    try:
        return orjson.dumps(data)
    except orjson.JSONEncodeError:  # lone surrogates, legal in a Python string and in no UTF-8
        return orjson.dumps(_well_formed(data))


def _well_formed(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_well_formed(name): _well_formed(member) for name, member in value.items()}
    return [_well_formed(member) for member in value] if isinstance(value, list) else value


def _cut(value: Any, limit: int) -> Any:
    """Cut every text and collection in a JSON value to `limit`; structure stays, as a call's shape is its identity."""
    if isinstance(value, str):
        return value if len(value) <= limit else f"{value[:limit]}… [{len(value) - limit} characters cut]"
    if isinstance(value, dict):
        return {_cut(name, limit): _cut(member, limit) for name, member in list(value.items())[:limit]}
    if isinstance(value, list):
        kept = [_cut(member, limit) for member in value[:limit]]
        return kept if len(value) <= limit else [*kept, f"… [{len(value) - limit} elements cut]"]
    return value
