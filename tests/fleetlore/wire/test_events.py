"""Events are read back as they were written, and every kind of bad event has its own reason."""

import re
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cloudevents import to_cloudevent
from fleetlore.errors import InvalidEvent
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event, Kind, event_id
from tests.read_back import read_back
from tests.rows import for_each

NOW = 1_767_225_600.0

names = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=40)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def raw(**changes: Any) -> dict[str, Any]:
    """A good outcome, with some attributes changed; those set to `...` are left out."""
    event = to_cloudevent(Event("outcome", "acme", "a", "s", 3, NOW, {ev.TOOL: "bash", ev.RESULT: "ok"}))
    event.update(changes)
    return {name: value for name, value in event.items() if value is not ...}


@given(
    st.sampled_from(get_args(Kind)),
    names,
    names,
    st.integers(0, ev.MAX_SEQUENCE),
    st.integers(0, int(NOW * 1000)),
    st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_characters="."), max_size=10), json_values, max_size=4
    ),
)
def test_an_event_reads_back_as_it_was_written(
    kind: Kind, agent: str, session: str, sequence: int, milliseconds: int, extra: dict[str, Any]
) -> None:
    event = Event(kind, "acme", agent, session, sequence, milliseconds / 1000, {**extra, ev.TOOL: "bash"})
    read = read_back(to_cloudevent(event), "acme", NOW)
    assert read._replace(time=0.0) == event._replace(time=0.0)
    assert read.time == pytest.approx(event.time, abs=1e-6)
    assert read.id == event.id


@for_each(
    "bad, reason",
    *((value, "wrong_shape") for value in ([], "text", None)),
    (raw(specversion="0.3"), "unknown_version"),
    (raw(specversion=...), "unknown_version"),
    (raw(type="ai.fleetlore.outcome.v2"), "unknown_version"),
    (raw(type="ai.fleetlore.party.v1"), "unknown_type"),
    (raw(type="outcome"), "unknown_type"),
    *((raw(type=kind), "unknown_type") for kind in (7, [], {}, ["ai.fleetlore.outcome.v1"])),
    (raw(type=...), "missing_field"),
    *((raw(tenant=tenant), "foreign_tenant") for tenant in ("other", 7, "acme.other")),
    (raw(sequence=...), "missing_field"),
    *((raw(sequence=number), "bad_field") for number in ("3", True, 3.0, -1, ev.MAX_SEQUENCE + 1)),
    (raw(data=...), "missing_field"),
    (raw(data=[1]), "bad_field"),
    (raw(agent=...), "missing_field"),
    (raw(agent=""), "missing_field"),
    (raw(agent=5), "bad_field"),
    (raw(agent="x" * (ev.MAX_ID_LENGTH + 1)), "bad_field"),
    (raw(session=...), "missing_field"),
    (raw(session="a\nb"), "control_characters"),
    (raw(agent="a\x00"), "control_characters"),
    (raw(agent="\x9f"), "control_characters"),
    (raw(time=...), "missing_field"),
    (raw(time="2026-01-01T00:05:01Z"), "future_time"),
    *((raw(time=time), "bad_field") for time in (NOW, "yesterday", "2026-01-01T00:00:00")),
    *((raw(time=time), "bad_field") for time in ("1970-01-01T00:00:00+00:01", "0001-01-01T00:00:00+14:00")),
    (raw(data={}), "missing_field"),
    (raw(data={ev.TOOL: 7}), "bad_field"),
    (raw(data={ev.TOOL: "a\tb"}), "control_characters"),
    (raw(data={ev.TOOL: "x" * (ev.MAX_ID_LENGTH + 1)}), "bad_field"),
    (raw(data={ev.TOOL: "bash", ev.ERROR_TYPE: 5}), "bad_field"),
    (raw(data={ev.TOOL: "bash", ev.ERROR_MESSAGE: {"text": "no"}}), "bad_field"),
    *(
        (raw(type="ai.fleetlore.session.ended.v1", data={ev.OUTCOME: outcome}), "bad_field")
        for outcome in ("fine", [], {}, ["success"])
    ),
    (raw(type="ai.fleetlore.session.ended.v1", data={ev.OUTCOME: "success", ev.REWARD: "1"}), "bad_field"),
    (raw(type="ai.fleetlore.session.ended.v1", data={ev.REWARD: True}), "bad_field"),
    (raw(type="ai.fleetlore.feedback.v1", data={ev.OUTCOME: "fine"}), "bad_field"),
    (raw(type="ai.fleetlore.session.started.v1", data={ev.GOAL: ["a"]}), "bad_field"),
    (raw(type="ai.fleetlore.session.started.v1", data={ev.TASK: 1}), "bad_field"),
    *((raw(type="ai.fleetlore.message.v1", data={name: 1}), "bad_field") for name in (ev.ROLE, ev.CONTENT)),
)
def test_each_bad_event_has_its_reason(bad: object, reason: str) -> None:
    with pytest.raises(InvalidEvent) as refused:
        read_back(bad, "acme", NOW)
    assert refused.value.reason == reason


@for_each(
    "good, field, value",
    (raw(time="2026-01-01T00:04:59Z"), "time", NOW + 299),  # a clock that is a little ahead
    (raw(tenant=...), "tenant", "acme"),  # the topic's
    (raw(tenant=None), "tenant", "acme"),
    (raw(traceparent="00-1-2-3", data={ev.TOOL: "bash", "x.y": 1}), "kind", "outcome"),  # unknown names
    (raw(agent="agent\u00a07"), "agent", "agent\u00a07"),  # harmless, though Python does not print it
)
def test_an_unusual_event_is_taken(good: object, field: str, value: object) -> None:
    assert getattr(read_back(good, "acme", NOW), field) == value


def test_an_event_sent_twice_has_one_id() -> None:
    first, again = (Event("outcome", "acme", "a", "s", 3, time, {}) for time in (1.0, 2.0))
    assert first.id == again.id == event_id("acme", "a", "s", 3)
    assert re.fullmatch("[0-9a-f]{32}-3", first.id)


@given(st.lists(st.tuples(names, names, names, st.integers(0, 9)), min_size=2, max_size=8, unique=True))
def test_different_events_have_different_ids(parts: list[tuple[str, str, str, int]]) -> None:
    assert len({event_id(*each) for each in parts}) == len(parts)
