"""Texts of events: whatever a client sends becomes text, and no secret gets past."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fleetlore.redact.redact import redact
from fleetlore.wire.decode import MESSAGE, OUTCOME, STARTED, Data, Incoming
from streams.stages.s1_sessions.parse import clean

TOKEN = "ghp_" + "a1B2" * 9
TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from([f"x {TOKEN}", "password=hunter2!x", "Bearer abcdefgh12345678", "https://u:p4ss@h/x"]),
)


def event(kind: Any, **data: Any) -> Incoming:
    return Incoming(
        specversion="1.0",
        type=kind,
        agent="a",
        session="s",
        sequence=0,
        time=datetime.fromtimestamp(0, UTC),
        data=Data(**data),
    )


def test_arguments_and_results_become_text() -> None:
    made = event(OUTCOME, tool="t", arguments={"b": 1, "a": [2]}, result=None)
    clean([made])
    assert (made.data.arguments, made.data.result) == ('{"a":[2],"b":1}', "")


def test_what_no_encoder_writes_becomes_text_all_the_same() -> None:
    nested: Any = "x"
    for _ in range(400):
        nested = [nested]
    made = event(OUTCOME, tool="t", arguments={"n": 2**70}, result=nested)
    clean([made])
    assert made.data.arguments == f'{{"n": "{2**70}"}}' or made.data.arguments == f'{{"n": {2**70}}}'
    assert made.data.result.startswith("[[")


def test_only_names_that_hold_a_secret_are_written_again() -> None:
    plain = event(OUTCOME, tool="t", advice=["a", "b"], withheld=[1, "c"])
    advice, withheld = plain.data.advice, plain.data.withheld
    masked = event(OUTCOME, tool=f"t {TOKEN}", advice=["a", TOKEN], withheld=TOKEN, role="r")
    clean([plain, masked])
    assert plain.data.advice is advice and plain.data.withheld is withheld
    assert (plain.data.tool, advice, withheld) == ("t", ["a", "b"], [1, "c"])
    assert (masked.data.tool, masked.data.advice) == (redact(f"t {TOKEN}"), ["a", redact(TOKEN)])
    assert (masked.data.withheld, masked.data.role) == (redact(TOKEN), "r")


@given(st.lists(st.tuples(st.sampled_from([OUTCOME, MESSAGE, STARTED]), TEXTS, TEXTS, TEXTS), max_size=8))
def test_a_batch_is_masked_as_each_of_its_texts_is(rows: list[tuple[Any, str, str, str]]) -> None:
    def made() -> list[Incoming]:
        return [
            event(kind, tool="t", arguments=a, result=b, error_message=c)
            if kind == OUTCOME
            else event(kind, **{"place" if kind == STARTED else "content": a}, goal=b, task=c)
            for kind, a, b, c in rows
        ]

    events = made()
    clean(events)
    for each, (kind, *texts) in zip(events, rows, strict=True):
        data = each.data
        masked = (
            [data.arguments, data.result, data.error_message]
            if kind == OUTCOME
            else [data.place if kind == STARTED else data.content, data.goal, data.task]
        )
        assert masked == [redact(text) for text in texts]


def test_of_one_record_only_so_much_is_looked_at_and_each_text_as_far_as_its_part_goes() -> None:
    def record() -> list[Incoming]:
        return [event(OUTCOME, tool="t", arguments=f"{n}", result=f"password=hunter2!{n} " * 300) for n in range(8)]

    first, second, harmless = record(), record(), [event(OUTCOME, tool="t", result="fine " * 1600) for _ in range(8)]
    names = [event(OUTCOME, tool=f"password=hunter2!{n} " + "x" * 8000, result="fine") for n in range(8)]
    few = [event(OUTCOME, tool="t", result=f"password=hunter2!{n} " * 300) for n in range(4)]
    clean(first, second, harmless, names, few)
    for masked in (first, second):
        assert all("hunter2" not in each.data.result for each in masked)
        assert all(each.data.result.endswith("[redacted:unread]") for each in masked)
        assert all(each.data.result.count("password=[redacted") > 90 for each in masked), "none is lost whole"
        assert [each.data.arguments for each in masked] == [str(n) for n in range(8)]
    assert all(each.data.result == "fine " * 1600 for each in harmless)
    assert all("unread" not in each.data.result and "hunter2" not in each.data.result for each in few)
    assert all(each.data.tool.endswith("[redacted:unread]") and "hunter2" not in each.data.tool for each in names)


def test_a_short_text_beside_long_ones_is_kept_whole_and_no_secret_is_cut_in_two() -> None:
    error = "KeyError: password=hunter2"
    for at in range(0, 120, 2):  # of six such texts some 4,090 characters each are looked at
        before = "password " * 440 + at * "y "
        texts = [f"{before}https://user:hunter2secret@db.example.com/{'z' * 40} {before}" for _ in range(6)]
        record = [event(OUTCOME, tool="t", result=text, error_message=error) for text in texts]
        clean(record)
        assert all(each.data.error_message == redact(error) for each in record)
        assert all("hunter2" not in each.data.result for each in record), at
