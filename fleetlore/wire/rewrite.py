"""Change a JSON text of somebody else in a few places, and pass on all other bytes as they came.

Decoding and encoding again would change integers beyond 64 bits, half surrogate pairs, NaN and how floats are written.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec

from fleetlore.wire.decode import json_text, read_json, well_formed

__all__ = ["rewritten"]


def rewritten(given: bytes, changed: Any) -> bytes:
    """The JSON text `given`, with the changes that were made to its value from `read_json`. Members of objects may be
    added and replaced, and elements be replaced and added at one end of a list. Bytes that are no text become U+FFFD. A
    text that is nested too deep to be written again comes back without the changes."""
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
