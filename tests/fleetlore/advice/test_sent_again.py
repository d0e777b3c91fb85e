"""A failed call that is about to be sent again unchanged is answered by what came of that elsewhere."""

from types import SimpleNamespace
from typing import Any

import pytest

from fleetlore.advice.advice import Advice, advise
from fleetlore.calls.call import MadeCall
from fleetlore.calls.context import CallContext
from fleetlore.calls.document import Threshold
from fleetlore.calls.model import Expected, Outlook
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import Pattern
from tests.build import failed_call, met, situation
from tests.rows import for_each

ERROR, CALL = "no such table: singers", {"query": "SELECT 1 FROM singers"}
FAILURE = failure_of("sql", "", "", ERROR)


def pattern(again: tuple[int, ...], id: str = FAILURE.class_) -> Pattern:
    return Pattern(id=id, level="class", tenant="default", tool="sql", failures=9, again=again)


def asked(*patterns: Pattern, call: object = CALL, **fields: Any) -> Advice:
    index = LoreIndex()
    for each in patterns:
        index.put_pattern(each)
    return advise(index, situation("sql", call, unchanged=failed_call("sql", CALL, "", ERROR), **fields))


def test_a_call_that_never_works_unchanged_is_answered_with_its_figures() -> None:
    advice = asked(pattern((412, 0, 40, 0)))
    assert "This exact call failed a moment ago; sent again unchanged it failed in 412 of 412 sessions." in advice.text
    assert "Change `singers`." in advice.text
    assert advice.sure and advice.tips[0].chance == pytest.approx(412.5 / 413)


def test_a_call_that_works_after_a_wait_is_said_to_wait_and_is_no_warning() -> None:
    advice = asked(pattern((40, 38, 9, 12)))
    assert "Wait 12 s and send it again, or use another way: after such a wait it worked in 38 of 40" in advice.text
    assert not advice.sure and advice.tips[0].chance is None


@for_each(
    "again",
    (),  # never sent again
    (208, 100, 40, 5),  # a test run that passes in half of the cases
    (5, 0, 3, 0),  # too few
    (400, 0, 1, 0),  # one agent alone
    (40, 38, 9, 86_400),  # nobody waits for a day
)
def test_nothing_is_said_of_what_is_not_sure(again: tuple[int, ...]) -> None:
    assert not asked(pattern(again))


def test_a_wider_kind_of_failure_speaks_where_too_little_is_known_of_this_one() -> None:
    wide = pattern((100, 0, 9, 0), FAILURE.family)
    assert "100 of 100" in asked(wide).text
    assert "100 of 100" in asked(wide, pattern((2, 0, 2, 0))).text
    assert not asked(wide, pattern((40, 20, 9, 3))), "of this failure it is known that it often works"


@for_each(
    "again, wait",
    ((40, 38, 9, 12), "wait 12 s and send"),
    ((40, 20, 9, 12), "wait and send"),
    ((40, 38, 1, 12), "wait and send"),
)
def test_a_passing_fault_is_of_the_kind_of_call_and_says_how_long_to_wait(again: tuple[int, ...], wait: str) -> None:
    index, error = LoreIndex(), "HTTP 503: Service Unavailable"
    broken, other = {"path": "/v2/stock"}, {"path": "/v2/stock", "page": 2}
    fault = met("http", broken, "", error, transient=True, last_seen=100.0)
    index.put_pattern(fault)
    index.put_pattern(Pattern(id=fault.parent or "", level="class", tenant="default", tool="http", again=again))
    text = advise(index, situation("http", broken, now=101.0)).text
    assert f"If it fails, {wait} this http call again: it has a passing fault" in text
    assert ("After such a wait it worked in 38 of 40 sessions." in text) == (again[1:3] == (38, 9))
    assert not advise(index, situation("http", other, now=101.0)), "another kind of call"


def test_it_is_said_once_for_a_call() -> None:
    first = asked(pattern((99, 0, 9, 0)))
    assert not asked(pattern((99, 0, 9, 0)), shown={tip.key for tip in first.tips})


def test_a_call_that_did_not_fail_gets_nothing(index: LoreIndex) -> None:
    index.put_pattern(pattern((99, 0, 9, 0)))
    moment = situation("sql", CALL, failed=failed_call("sql", CALL, "", ERROR))
    assert not [tip for tip in advise(index, moment).tips if tip.source == "sent again"]


NO_COLUMN, NO_TABLE = Expected("no such column: <name>", agents=3), Expected("no such table: <name>", agents=3)


def said(expected: Expected, error: str | None = None, chance: float = 0.9) -> Advice:
    context = CallContext("g")
    if error is not None:
        context.record(MadeCall("sql", {"query": "SELECT 1 FROM a"}), error, "family")
    known: Any = SimpleNamespace(expected=lambda *_: expected, places={}, until=0.0, look_ups={}, need=lambda *_: None)
    outlook = Outlook(chance, Threshold("sql", context.state, 0.7, 9, 9))
    asked = situation("sql", {"query": "SELECT 2 FROM b"}, context=context, outlook=outlook, model=known)
    return advise(LoreIndex(), asked)


@for_each("error", None, "no such table: a")
@for_each(
    "expected, line, sure",
    (NO_COLUMN, "This sql call will likely fail: no such column.", True),
    (
        Expected("no such column: <name>", agents=3, other=NO_TABLE),
        "This sql call will likely fail: no such column: … or no such table.",
        False,
    ),
    (Expected(""), "This sql call will likely fail.", False),
)
def test_a_likely_failure_is_said_with_the_kinds_that_are_sure(
    expected: Expected, line: str, sure: bool, error: str | None
) -> None:
    advice = said(expected, error)
    assert line in advice.text
    assert advice.sure is sure
