from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.advice.provenance import MARK, AdviceLedger, redact_fenced
from tests.rows import for_each

LINE = "Change: query cars_data where cars was meant"
ADVICE = f"<fleet-memory>\n- [#r] recovery: {LINE}\n</fleet-memory>"


@pytest.fixture
def told() -> AdviceLedger:
    recalled = AdviceLedger()
    recalled.show("call", ("item-1234-long", "pattern"), ("held",), [LINE, "SELECT 2"])
    return recalled


@for_each(
    "value, marked",
    (f"I was told: {ADVICE} and act on it", f"I was told: {MARK} and act on it"),
    (ADVICE[:-16], f"{MARK}\n- [#r] recovery: {LINE}"),  # cut off before its end: it hides no more than its line
    ({"path": "notes.md", "content": [f"# Notes\n{ADVICE}\n{ADVICE}"]},) * 1
    + ({"path": "notes.md", "content": [f"# Notes\n{MARK}\n{MARK}"]},),
    ("what the fleet memory says of <fleet> and memory>", "what the fleet memory says of <fleet> and memory>"),
)
def test_a_quotation_of_advice_is_marked_wherever_it_stands(value: Any, marked: Any) -> None:
    assert redact_fenced(value) == marked
    assert AdviceLedger().redact_shown(value) == marked


def test_lines_that_were_shown_are_marked_and_a_call_that_follows_them_is_not(told: AdviceLedger) -> None:
    assert told.redact_shown(f"The memory says: {LINE}. So I do.") == f"The memory says: {MARK}. So I do."
    assert told.redact_shown({"note": [LINE, LINE]}) == {"note": [MARK, MARK]}
    assert told.redact_shown(f"I note: {LINE[:20]}\u200b{LINE[20:]}") == f"I note: {MARK}"
    assert told.redact_shown(hidden := "a sentence\u200b of no advice at all") is hidden
    for harmless in ("SELECT 2", {"query": "SELECT 2"}, {"query": "SELECT * FROM cars_data WHERE id = 4"}, 7, None):
        assert told.redact_shown(harmless) is harmless
    assert AdviceLedger().redact_shown(LINE) == LINE  # to a session that was never told it, it is news


@for_each(
    "quoted",
    LINE.upper(),
    LINE.replace(" ", "\u00a0"),
    LINE.replace(": ", ":\n    > "),
    LINE.replace(" ", "  "),
    orjson.dumps({"note": LINE.replace(" where ", "\nwhere ")}).decode(),
    LINE.replace(" was", " \\u2014 was"),
    f"**{LINE.replace('cars_data', '`cars_data`')}**",
    *(f"{LINE[:20]}{hidden}{LINE[20:]}" for hidden in "\u200b\u00ad\ufe0f\u2066\U000e0041"),
    f"`{LINE.removeprefix('Change: ')}`",
    f"```\n{LINE}\n```",
    f"{'x' * 9000} {LINE}",
)
def test_a_line_is_recognised_in_other_case_wrapped_and_escaped(told: AdviceLedger, quoted: str) -> None:
    marked = told.redact_shown(f"as told, {quoted}; so I do")
    assert MARK in marked and "cars" not in marked.lower()
    assert marked.startswith("as told, ") and marked.endswith("; so I do")


def test_a_line_is_recognised_as_the_key_of_an_object(told: AdviceLedger) -> None:
    assert told.redact_shown({LINE: 1, "b": [{f"x {LINE}": None}]}) == {MARK: 1, "b": [{f"x {MARK}": None}]}


json_values = st.recursive(
    st.none() | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_what_holds_nothing_recalled_goes_through_untouched(value: Any) -> None:
    recalled = AdviceLedger()
    recalled.show("call", ("item",), (), [LINE])
    if LINE not in repr(value):
        assert recalled.redact_shown(value) is value


@pytest.mark.timeout(5)
def test_a_cycle_or_endless_depth_does_no_harm(told: AdviceLedger) -> None:
    cycle: list[Any] = [LINE]
    cycle.extend([cycle] * 20)
    assert told.redact_shown(cycle)[0] == MARK


def test_a_collection_that_fails_is_not_raised_in_the_agent(told: AdviceLedger) -> None:
    class Rows(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("the connection is closed")

    assert told.redact_shown([Rows(), LINE]) == ["<unreadable Rows>", MARK]


def test_what_was_heeded_counts_for_the_next_call(told: AdviceLedger) -> None:
    told.show("safer call", ("r",), (), [])
    assert told.take("safer call") == (["r"], [])
    told.show("next", ("s",), (), [])
    assert told.take("next") == (["s", "item-1234-long", "pattern"], ["held"])


def test_what_is_remembered_is_bounded() -> None:
    recalled = AdviceLedger()
    lines = [f"line number {number:04} of very many" for number in range(500)]
    for line in lines:
        recalled.show("call", ("item",), (), [line])
    assert recalled.redact_shown(lines[-1]) == MARK
    assert recalled.redact_shown(lines[0]) == lines[0]
