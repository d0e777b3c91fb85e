"""Records: many events in one, as the emitter writes them."""

from __future__ import annotations

import orjson

from fleetlore.wire import events as ev
from fleetlore.wire.events import BATCH_HEADERS, BATCH_TYPE, CONTENT_TYPE, Event, encode_record
from tests.read_back import read_back

NOW = 1_767_225_600.0


def test_a_record_reads_back_as_the_events_it_was_made_of() -> None:
    sent = [Event("outcome", "acme", "a", "s", number, NOW, {ev.TOOL: "bash", ev.RESULT: "ok"}) for number in range(5)]
    assert [read_back(raw, "acme", NOW) for raw in orjson.loads(encode_record(sent))] == sent
    assert BATCH_HEADERS == [(CONTENT_TYPE, BATCH_TYPE)]
