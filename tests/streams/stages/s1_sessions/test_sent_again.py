"""A failed call that is sent again unchanged is counted, in whatever order its events arrive."""

from datetime import UTC, datetime
from itertools import permutations

import pytest

from fleetlore.wire.decode import ENDED, OUTCOME, STARTED, Data, Incoming
from streams.stages.s1_sessions.open_session import OpenSession

NOW = 1_767_225_600.0
Made = tuple[str, str | None]


def again(calls: list[Made], order: tuple[int, ...] | None = None, seconds: float = 1.0) -> set[int]:
    """What the observations of failures say, but of those that were not sent again."""
    data: list[tuple[str, Data]] = [(STARTED, Data(goal="g"))]
    data += [(OUTCOME, _data(*each)) for each in calls]
    data.append((ENDED, Data(outcome="success")))
    session = OpenSession("default", "s", "a", 0, 0, NOW)
    for number in order or range(len(data)):
        kind, fields = data[number]
        time = NOW + seconds * number
        stamp = datetime.fromtimestamp(time, UTC)
        made = {"specversion": "1.0", "type": kind, "agent": "a", "session": "s", "sequence": number, "time": stamp}
        session.add(Incoming(**made, data=fields), time)
    seen = [each for each in session.take_observations() if each.subject.level in ("class", "family")]
    return {each.again for each in seen} - {0}


def _data(arguments: str, error: str | None) -> Data:
    return Data(tool="sql", arguments=arguments, result="" if error else "ok", error_message=error)


A, B, WORKED = ("select a", "no such column: a"), ("select b", "no such column: b"), ("select 1", None)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([A, A], {1}),
        ([A, A, A], {1}),
        ([A, ("select a", None)], {2 + 1}),
        ([A, A, ("select a", None)], {2 + 1}),  # it worked in the end, one second after it failed last
        ([A, B, A], {1}),  # no call worked between
        ([A, WORKED, A], set()),  # something was changed that may help: a test run after an edit
        ([A, ("select a, b", "no such column: a")], set()),  # other arguments
        ([A, ("select a ", "no such column: a")], set()),
        ([A, *[(f"select {n}", f"no such column: c{n}") for n in range(32)], A], set()),  # too long ago
        ([WORKED, WORKED], set()),
        ([A], set()),
    ],
)
def test_only_the_same_call_with_no_call_that_worked_between_is_sent_again(
    calls: list[Made], expected: set[int]
) -> None:
    assert again(calls) == expected


def test_the_order_of_arrival_leaves_no_trace() -> None:
    assert {
        frozenset(again([A, A, ("select a", None)], order)) for order in permutations(range(5)) if order[0] == 0
    } == {frozenset({3})}


def test_the_wait_is_counted_in_seconds() -> None:
    assert again([A, ("select a", None)], seconds=30) == {2 + 30}
