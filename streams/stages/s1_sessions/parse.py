"""Read events: the bytes of a record become checked structs in one pass, with cleaned texts.

A wholly good record, as nearly all are, is decoded at once. Others are read event by event, so that each bad event gets
its reason. Then secrets are masked and recalled advice, which is no evidence, is cut: a foreign client may not have
done so.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from fleetlore.advice.provenance import OPENING, redact_fenced
from fleetlore.errors import InvalidEvent
from fleetlore.fingerprint.fingerprint import arguments_text
from fleetlore.redact.named_values import REDACTED
from fleetlore.redact.redact import redact, redact_name, suspects
from fleetlore.redact.values import whole_tokens
from fleetlore.wire.decode import (
    OUTCOME,
    STARTED,
    Data,
    Incoming,
    event_parts,
    incoming,
    json_reader,
    latest_from,
    refusal,
)
from fleetlore.wire.events import MAX_EVENT_BYTES
from fleetlore.wire.principals import ANYONE, Principals, principal_of
from fleetlore.wire.trajectory import Feedback
from streams.stage.base import DeadLetter, Effects, Outgoing, Record, dead_letter
from streams.stage.operators import Erased

__all__ = ["Arrival", "read_events"]

_read_all = json_reader(list[Incoming])
_read_one = json_reader(Incoming)
# Characters checked of a text: no stage keeps more than 2,000 or reads more than 8,000.
_MAX_READ = 8192
# Characters checked for secrets in one record, at a microsecond each, in suspect texts. Beyond, each text is checked up
# to its share and the rest is dropped.
_MAX_SUSPECTED = 24 * 1024
# Characters dropped at the end of a cut text, because a secret may be cut in two there.
_NOT_KEPT = 96
_UNREAD = f"{REDACTED}unread]"
# The texts of an event, by its type: equally many each.
_TEXTS = {OUTCOME: ("arguments", "result", "error_message"), STARTED: ("place", "goal", "task")}
_OTHER_TEXTS = ("content", "goal", "task")
_NAMES = ("tool", "error_type", "role", "guard", "place", "user")
_UNCHECKED = ("adapter", "advice", "withheld")
_names, _unchecked = attrgetter(*_NAMES), attrgetter(*_UNCHECKED)
_ALL_UNSET = (None,) * len(_UNCHECKED)


class Arrival(NamedTuple):
    event: Incoming
    record: Record

    def letter(self, error: Exception) -> DeadLetter:
        event, record = self
        for part, _ in event_parts(record.value or b"", record.headers):
            try:
                found = _read_one(part)
            except msgspec.DecodeError:
                continue
            if (found.session, found.sequence, found.agent) == (event.session, event.sequence, event.agent):
                return dead_letter(record, error, part)
        return dead_letter(record, error, record.value or b"")

    def is_erased(self, erased: Erased) -> bool:
        event = self.event
        return erased.drops(self.record.tenant, event.session, event.agent, event.time.timestamp())

    def feedback(self, *, claimed: bool) -> list[Outgoing]:
        event, label = self.event, self.event.data.outcome
        if label == "unknown":
            return []
        time = event.time.timestamp()
        given = Feedback(session=event.session, label=label, time=time, by=event.agent, claimed=claimed)
        return [Outgoing(self.record.tenant, "trajectories", given.session, given.to_json())]


def read_events(record: Record, effects: Effects, principals: Principals | None = None) -> list[Incoming]:
    """Return the good events of a record. Bad ones, and unsigned ones if there are `principals`, become dead letters.

    Events later than the record's broker time are refused: no worker's clock is asked, so replays agree.
    """
    value, tenant, principal = record.value or b"", record.tenant, ANYONE
    good: list[Incoming] = []
    try:
        latest = latest_from(record.time)
        if principals is not None:
            principal = principals.signed_by(record.headers, record.topic, value)
        if len(value) <= MAX_EVENT_BYTES and not record.headers.get("ce_specversion"):
            with suppress(Exception):  # found again below, with its reason
                events = _read_all(value) if value[:1] == b"[" else [_read_one(value)]
                if all(refusal(event, tenant, latest) is None for event in events) and (
                    principal == ANYONE or all(principal_of(event.agent) == principal for event in events)
                ):
                    effects.processed += len(events)
                    return events
        parts = event_parts(value, record.headers)
    except Exception as error:
        effects.dead_letters.append(dead_letter(record, error))
        return good
    for part, given in parts:
        try:
            if len(part) > MAX_EVENT_BYTES:
                raise InvalidEvent("too_large", f"{len(part)} bytes; the limit is {MAX_EVENT_BYTES}")
            event = incoming(given, tenant, latest)
            if principal not in (ANYONE, principal_of(event.agent)):
                raise InvalidEvent("foreign_principal", f"{principal!r} signed it, and is not agent {event.agent!r}")
            good.append(event)
        except Exception as error:
            effects.dead_letters.append(dead_letter(record, error, None if len(parts) == 1 else part))
    effects.processed += len(good)
    return good


def clean_records(
    read: Sequence[tuple[Record, list[Incoming]]], effects: Effects, principals: Principals | None = None
) -> None:
    """Clean what `read_events` has read, or make a dead letter of it."""
    try:
        clean(*[events for _, events in read])
        return
    except Exception:
        pass  # read again below, record by record
    for record, events in read:
        try:
            effects.processed -= len(events)
            events[:] = read_events(record, Effects(), principals)
            clean(events)
            effects.processed += len(events)
        except Exception as error:
            effects.dead_letters.append(dead_letter(record, error))
            events.clear()


def clean(*records: Sequence[Incoming]) -> None:
    fields: list[tuple[Data, str]] = []
    for event in (event for record in records for event in record):
        data = event.data
        if event.type == OUTCOME:
            data.arguments, data.result = arguments_text(data.arguments), arguments_text(data.result)
        fields += [(data, name) for name in _TEXTS.get(event.type, _OTHER_TEXTS)]
    texts: list[str] = [getattr(data, name) or "" for data, name in fields]
    by_record = [_names_of(record) for record in records]
    names = list(set[str]().union(*by_record))
    for place, text in enumerate(texts):
        if OPENING in text:
            texts[place] = redact_fenced(text)
            setattr(*fields[place], texts[place][:_MAX_READ])
        # One character too many tells `_look` that the text goes on. A mask is shorter than what it hides, so what
        # follows the characters that are checked could move among those that stages keep.
        texts[place] = texts[place][: _MAX_READ + 1]
    # Search once: a small batch's names cost as much as its texts.
    suspected = suspects([*texts, *(name[:_MAX_READ] for name in names)])
    cut = {name: name[:_MAX_READ] for name in names if len(name) > _MAX_READ}
    if cut:
        for record in records:
            _rename(record, cut)
        by_record = [_names_of(record) for record in records]
    named = {names[place - len(texts)][:_MAX_READ] for place in suspected if place >= len(texts)}
    if suspected:
        begin = 0
        for record, own_names in zip(records, by_record, strict=True):
            end = begin + len(_OTHER_TEXTS) * len(record)
            own = suspected[bisect_left(suspected, begin) : bisect_left(suspected, end)]
            _mask(record, named & own_names, [(*fields[place], texts[place]) for place in own])
            begin = end


def _mask(record: Sequence[Incoming], names: set[str], texts: Sequence[tuple[Data, str, str]]) -> None:
    longest = _longest([len(text) for text in (*names, *(text for _, _, text in texts))])
    if masked := {name: said for name in names if (said := _look(name, longest)) != name}:
        _rename(record, masked)
    for data, name, text in texts:
        setattr(data, name, _look(text, longest))


def _longest(sizes: Sequence[int]) -> int:
    left = _MAX_SUSPECTED
    for number, size in enumerate(sorted(sizes)):
        part = left // (len(sizes) - number)
        if size > part:
            return part
        left -= size
    return _MAX_READ


def _look(text: str, longest: int) -> str:
    if len(text) <= longest:
        return redact(text)
    masked = redact(text[:longest])
    return f"{masked[: whole_tokens(masked, max(0, len(masked) - _NOT_KEPT))]}{_UNREAD}"


def _names_of(events: Sequence[Incoming]) -> set[str]:
    """A secret in a name would reach every row that holds it."""
    found: set[str | None] = set()
    for event in events:
        found.update((event.agent, event.session), _names(event.data))
        for value in _unchecked(event.data):
            if value is not None:
                found.update([each for each in (value if type(value) is list else (value,)) if type(each) is str])
    return {name for name in found if name}


def _rename(events: Sequence[Incoming], masked: Mapping[str, str]) -> None:
    for event in events:
        if event.agent in masked:
            event.agent = redact_name(event.agent)
        if event.session in masked:
            event.session = redact_name(event.session)
        values = _names(event.data)
        if not masked.keys().isdisjoint(values):
            for field, value in zip(_NAMES, values, strict=True):
                if value in masked:
                    setattr(event.data, field, masked[value])
        unchecked = _unchecked(event.data)
        if unchecked != _ALL_UNSET:
            for field, value in zip(_UNCHECKED, unchecked, strict=True):
                if (renamed := _renamed(value, masked)) != value:
                    setattr(event.data, field, renamed)


def _renamed(value: Any, masked: Mapping[str, str]) -> Any:
    if type(value) is list:
        return [_renamed(each, masked) if type(each) is str else each for each in value]
    return masked.get(value, value) if type(value) is str else value
