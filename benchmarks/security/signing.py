"""Time what it costs that a principal signs what it sends: an agent's emitter, and a worker that reads a record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from benchmarks.traffic import TOPIC, traffic
from fleetlore.wire.events import BATCH_HEADERS
from fleetlore.wire.principals import SIGNED_BY, Principals, principal_of, signer
from streams.stage.base import Effects, Record
from streams.stages.s1_sessions.parse import read_events

EVENTS = 20_000
_ROUNDS = 5
_KEY = "a key of the worker, which is long enough"


def signing(events: int = EVENTS) -> Iterator[tuple[str, str, str, str]]:
    """Lines of the page: microseconds of the processor an event and a record, the least of a few rounds."""
    sent = traffic(events)
    values = [each.value for each in sent.records]
    principals = Principals(_KEY)
    plain = [Record(TOPIC, 0, 0, None, value, dict(BATCH_HEADERS)) for value in values]
    signers = [_signer(principals, each) for each in plain]
    signed = [
        Record(TOPIC, 0, 0, None, value, {**dict(BATCH_HEADERS), SIGNED_BY: sign(TOPIC, value)[1]})
        for sign, value in zip(signers, values, strict=True)
    ]
    of = f"{sent.events:,} events in {len(values):,} records"
    spent = _least(lambda: [sign(TOPIC, value) for sign, value in zip(signers, values, strict=True)])
    yield "signing", "an agent's record, signed", of, _said(spent, sent.events, len(values))
    before = _least(lambda: _read(plain, None))
    spent = _least(lambda: _read(signed, principals)) - before
    rival = f"; read without: {1e6 * before / sent.events:.2f} µs an event"
    yield "signing", "a worker's record, checked", of, _said(spent, sent.events, len(values)) + rival


def _signer(principals: Principals, record: Record) -> Callable[[str, bytes], tuple[str, bytes]]:
    """Signs for the principal of the record's events, or as a relay does where they are of many."""
    names = {principal_of(event.agent) for event in read_events(record, Effects())}
    sign = signer(principals.key_of(*names) if len(names) == 1 else _KEY)
    if sign is None:
        raise ValueError("nothing signs")
    return sign


def _said(seconds: float, events: int, records: int) -> str:
    return f"{1e6 * seconds / events:.2f} µs an event, {1e6 * seconds / records:.0f} µs a record"


def _read(records: Sequence[Record], principals: Principals | None) -> None:
    effects = Effects()
    for record in records:
        read_events(record, effects, principals)
    if effects.dead_letters:
        raise ValueError(f"{len(effects.dead_letters)} were refused")


def _least(work: Callable[[], object]) -> float:
    least = float("inf")
    for _ in range(_ROUNDS):
        began = time.process_time()
        work()
        least = min(least, time.process_time() - began)
    return least
