from __future__ import annotations

from collections.abc import Callable

from benchmarks.backtest.cases import Case
from benchmarks.backtest.memory_quality import (
    MIN_SESSIONS,
    harmless_patterns,
    harmless_warnings,
    junk_reasons,
    recurrence,
)
from fleetlore.fingerprint.fingerprint import call_id, failure_of
from fleetlore.wire.lore import MemoryItem, Pattern
from tests.build import memory_item

MakeCase = Callable[..., Case]
NO_COLUMN = "no such column: 'name'"
NOT_FOUND = "user 'bob' not found"
FAILURE = failure_of("sql", "FIND bob", None, NOT_FOUND)


def sessions(make_case: MakeCase, met_failed: int, others_failed: int) -> list[Case]:
    met = [
        make_case(f"m{n}", "ann", "cook", ("FIND bob", NOT_FOUND), failed=n < met_failed) for n in range(MIN_SESSIONS)
    ]
    others = [
        make_case(f"o{n}", "ann", "cook", ("FIND ann", None), failed=n < others_failed) for n in range(MIN_SESSIONS)
    ]
    return met + others


def item(id: str, **fields: object) -> MemoryItem:
    values = {
        "kind": "recovery",
        "remedy": {"tool": "sql"},
        "title": "sql: no such table: 'x'",
        "tool": "sql",
        "sessions": ("m1",),
    }
    values["content"] = f"Error: no such table: 'x'\nWorked: sql(SELECT {id})"
    return memory_item(id, **(values | fields))


def test_a_pattern_is_harmless_where_its_sessions_end_no_worse(make_case: MakeCase) -> None:
    assert FAILURE.class_ in harmless_patterns(sessions(make_case, 2, 4))
    assert FAILURE.exact in harmless_patterns(sessions(make_case, 4, 4))
    assert FAILURE.class_ not in harmless_patterns(sessions(make_case, 5, 4))


def test_few_sessions_prove_nothing(make_case: MakeCase) -> None:
    assert not harmless_patterns(sessions(make_case, 0, 8)[1:])


def test_harm_in_one_source_is_harm(make_case: MakeCase) -> None:
    cases = sessions(make_case, 2, 4)
    worse = [Case(case.trajectory, "elsewhere", case.failed, case.ended) for case in sessions(make_case, 8, 0)]
    assert FAILURE.class_ not in harmless_patterns([*cases, *worse])


def test_transient_errors_are_harmless_whatever_came_after_them(make_case: MakeCase) -> None:
    transient = failure_of("sql", "SELECT 1", None, "HTTP 503 Service Unavailable")
    case = make_case("1", "ann", "cook", ("SELECT 1", "HTTP 503 Service Unavailable"))
    assert transient.class_ in harmless_patterns([case])


def test_each_reason_for_junk() -> None:
    reasons = junk_reasons(
        [
            item("good"),
            item("of a part", sessions=("m1#2",)),
            item("of a sign", sessions=("m#1",)),
            item("unbacked", support=0),
            item("unknown", sessions=("nowhere",)),
            item("quiet", pattern="harmless"),
            item("said", content="Error: no such table: 'x'\nWorked: sql(SELECT good)"),
            item("empty", remedy=None),
        ],
        {"m1", "m#1"},
        {"harmless"},
    )
    assert reasons == {"no_evidence": 2, "harmless": 1, "repeated": 1, "empty": 1}


def test_the_share_of_harmless_warnings(make_case: MakeCase) -> None:
    call = call_id("sql", "FIND eve")
    pattern = Pattern(
        id="exact-1", level="exact", tenant="default", tool="sql", call=call, calls=3, failures=3, sessions=3, agents=2
    )
    health = Pattern(id=call, level="call", tenant="default", tool="sql", calls=4, failures=3, sessions=3, agents=2)
    test = [make_case("1", "ben", "cook", ("FIND eve", None), ("DROP x", None))]
    assert harmless_warnings(test, [pattern, health], [], {"exact-1"}, now=10.0) == 1.0
    assert harmless_warnings(test, [pattern, health], [], set(), now=10.0) == 0.0
    assert harmless_warnings(test, [], [], set(), now=10.0) is None


def test_errors_recur_only_through_another_agent(make_case: MakeCase) -> None:
    train = [make_case("1", "ann", "cook", ("SELECT name", NO_COLUMN))]
    own = make_case("2", "ann", "cook", ("SELECT name", NO_COLUMN))
    other = make_case("3", "ben", "cook", ("SELECT name FROM x WHERE 1", NO_COLUMN), ("DROP x", "no such table: 'x'"))
    assert recurrence(train, [own]) == {"shop": {"family": 0.0, "class": 0.0, "exact": 0.0}}
    figures = recurrence(train, [other])["shop"]
    assert figures["class"] == 0.5
    assert recurrence(train, [make_case("4", "eve", "cook", ("SELECT 1", None))]) == {
        "shop": {"family": None, "class": None, "exact": None}
    }
