"""The breaker trips on a stream that is refused wholesale, and on nothing less."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.errors import BreakerTripped
from fleetlore.wire.principals import Principals, signer
from streams.runtime.bad_records import RUN_SECONDS, SUSPECT_RECORDS, Breaker, sender_of
from streams.stage.base import Record, TopicPartition

RUN = 4
EVENTS = "fleetlore.acme.events"
MINUTE = 60.0


def lost(breaker: Breaker, number: int, reason: str = "not_json", tp: TopicPartition | None = None) -> None:
    """A lost record of one of two senders, a minute after the one before."""
    breaker.lost(EVENTS, reason, 1_000 + MINUTE * number, f"agent-{number % 2}", tp, number)


records = st.tuples(st.booleans(), st.integers(0, 40), st.sampled_from(["", "alice", "bob"]))


@given(st.lists(records, max_size=60))
def test_it_trips_where_the_definition_says(outcomes: list[tuple[bool, int, str]]) -> None:
    breaker, expected, found, now = Breaker(RUN), None, None, 1_000.0
    run: list[tuple[float, str]] = []
    for number, (good, seconds, sender) in enumerate(outcomes):
        now += seconds
        run = [] if good else [*run, (now, sender)]
        long = len(run) >= RUN and run[-1][0] - run[0][0] >= RUN_SECONDS
        if expected is None and long and len({who for _, who in run}) > 1:
            expected = number
        try:
            if good:
                breaker.good(EVENTS)
            else:
                breaker.lost(EVENTS, "not_json", now, sender)
        except BreakerTripped:
            found = number if found is None else found
    assert found == expected


@pytest.mark.parametrize("senders", [1, 2, 50])
def test_a_burst_never_trips_it_and_neither_does_one_sender_for_hours(senders: int) -> None:
    breaker = Breaker(RUN)
    for number in range(5_000):
        breaker.lost(EVENTS, "not_json", 1_000 + number % 100, f"agent-{number % senders}")
    breaker.good(EVENTS)
    for number in range(5_000):
        breaker.lost(EVENTS, "not_json", 2_000 + 60 * number, "one")
    assert breaker.suspect(EVENTS) == {} and breaker.run(EVENTS) == 0


def test_a_run_of_several_senders_is_suspect_when_it_is_long_or_nothing_good_was_seen() -> None:
    breaker, tp = Breaker(1000), TopicPartition(EVENTS, 1)
    assert breaker.suspect(EVENTS) == {}
    lost(breaker, 5, tp=tp)
    assert breaker.suspect(EVENTS) == {}
    lost(breaker, 6, tp=tp)
    assert breaker.suspect(EVENTS) == {tp: 5}
    breaker.good(EVENTS)
    assert breaker.suspect(EVENTS) == {}
    for offset in range(7, 7 + SUSPECT_RECORDS - 1):
        lost(breaker, offset, tp=tp)
    assert breaker.suspect(EVENTS) == {}
    lost(breaker, 3, tp=TopicPartition(EVENTS, 0))
    assert breaker.suspect(EVENTS) == {tp: 7, TopicPartition(EVENTS, 0): 3}
    breaker.good(EVENTS)
    assert breaker.suspect(EVENTS) == {}


def test_the_message_names_the_stream_the_reasons_the_place_and_the_remedy() -> None:
    breaker = Breaker(RUN)
    breaker.good(EVENTS)
    for number in range(RUN - 1):
        lost(breaker, 40 + number, "unknown_version", TopicPartition(EVENTS, number % 2))
    with pytest.raises(BreakerTripped) as raised:
        lost(breaker, 50, "missing_field", TopicPartition(EVENTS, 0))
    said = str(raised.value)
    assert said.startswith(f"{EVENTS}: the last {RUN} records were refused")
    for part in ("unknown_version 3, missing_field 1", "0 from 40, 1 from 41", "over 600 s"):
        assert part in said
    assert "dead-letters list" in said and f"FLEETLORE_BREAKER_RUN_RECORDS (now {RUN})" in said


KEY = "k" * 32


def junk(value: bytes, topic: str = EVENTS, **headers: bytes) -> Record:
    return Record(topic, 1, 7, None, value, headers)


def test_a_sender_is_who_signed_or_without_principals_the_agent_that_is_named() -> None:
    assert sender_of(junk(b'{"agent":"alice:2"}'), None) == "alice"
    assert sender_of(junk(b'[{"agent":"bob"},1]'), None) == "bob"
    assert sender_of(junk(b"{}", ce_agent=b"carol"), None) == "carol"
    for nobody in (b"", b"junk", b"[]", b"[1]", b"1", b'{"agent":[1]}', b"\xff", b"[" * 5_000):
        assert sender_of(junk(nobody), None) == ""
    principals, value = Principals(KEY), b'{"agent":"eve"}'
    assert sender_of(junk(value), principals) == "", "anybody may write a name"
    for key, expected in ((principals.key_of("dave"), "dave"), (KEY, "eve")):
        sign = signer(key)
        assert sign is not None
        header, mark = sign(EVENTS, value)
        assert sender_of(Record(EVENTS, 1, 7, None, value, {header: mark}), principals) == expected


def test_on_topics_that_only_workers_write_each_record_counts() -> None:
    assert sender_of(junk(b"junk", "fleetlore.acme.trajectories"), None) == "1@7"
