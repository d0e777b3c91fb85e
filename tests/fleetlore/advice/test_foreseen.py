"""A warning of the call model comes before the call, also after a failure."""

from types import SimpleNamespace
from typing import Any

from fleetlore.advice.advice import Advice, advise
from fleetlore.calls.call import MadeCall
from fleetlore.calls.context import CallContext
from fleetlore.calls.document import Threshold
from fleetlore.calls.model import Expected, Outlook
from fleetlore.recall.index import LoreIndex
from models.calls.gate import Foreseen, thresholds
from tests.build import situation
from tests.rows import for_each

NO_COLUMN, NO_TABLE = Expected("no such column: <name>", agents=3), Expected("no such table: <name>", agents=3)


def said(expected: Expected, error: str | None = None, chance: float = 0.9) -> Advice:
    context = CallContext("g")
    if error is not None:
        context.record(MadeCall("sql", {"query": "SELECT 1 FROM a"}), error, "family")
    known: Any = SimpleNamespace(expected=lambda *_: expected, places={}, until=0.0, look_ups={}, need=lambda *_: None)
    outlook = Outlook(chance, Threshold("sql", context.state, 0.7, 9, 9))
    asked = situation("sql", {"query": "SELECT 2 FROM b"}, context=context, outlook=outlook, model=known)
    return advise(LoreIndex(), asked)


@for_each("error", [None, "no such table: a"])
@for_each(
    "expected, line, sure",
    [
        (NO_COLUMN, "This sql call will likely fail: no such column.", True),
        (
            Expected("no such column: <name>", agents=3, other=NO_TABLE),
            "This sql call will likely fail: no such column: … or no such table.",
            False,
        ),
        (Expected(""), "This sql call will likely fail.", False),
    ],
)
def test_a_likely_failure_is_said_with_the_kinds_that_are_sure(
    expected: Expected, line: str, sure: bool, error: str | None
) -> None:
    advice = said(expected, error)
    assert line in advice.text
    assert advice.sure is sure


def test_kinds_that_too_few_agents_met_are_left_out() -> None:
    kinds = Expected("disk full", agents=1, other=Expected("quota spent", agents=1))
    assert "This sql call will likely fail." in said(kinds).text


def test_a_tool_whose_calls_nearly_all_fail_after_a_failure_is_warned_of() -> None:
    calls = [Foreseen(n, f"s{n}", 1, "sql", "after_failure", 0.9, n % 10 > 0) for n in range(40)]
    (found,) = thresholds({("sql", "after_failure"): calls}, {})
    assert Outlook(0.9, found).warned
    assert not Outlook(0.6, found).warned
