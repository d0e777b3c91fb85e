from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fleetlore.calls.likeness import FailureWords
from fleetlore.calls.places import Ended, PlaceNames
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.recall import ways_out
from fleetlore.recall.index import LoreIndex
from fleetlore.recall.ways_out import MAX_TEXT, PLACE_ID, FailedCall, masked, ranked, way_out
from fleetlore.wire.lore import MemoryItem

_SQRT = "NameError: name 'sqrt' is not defined"


def failed(call: str = "print(sqrt(16))", error: str = _SQRT, tool: str = "python", **known: object) -> FailedCall:
    return FailedCall(call, error, failure_of(tool, call, None, error), **{"goal": "the root of 16", **known})  # type: ignore[arg-type]


def item(id: str, change: str, of: FailedCall, **known: object) -> MemoryItem:
    near = FailureWords.of(of.goal, of.text, of.error, of.failure).to_text()
    fields = {"support": 3, "agents": 3, "sessions": ("s1", "s2", "s3"), "near": (near,), **known}
    return MemoryItem(
        id=id,
        tenant="",
        kind="recovery",
        title="",
        description="",
        content=f"Change: {change}",
        when="",
        tool="python",
        **fields,  # type: ignore[arg-type]
    )


def lore(*items: MemoryItem) -> LoreIndex:
    index = LoreIndex()
    for each in items:
        index.put_item(each, 0.0)
    return index


FIX = item("itemfix", "add `from math import sqrt`", failed("print(sqrt(2))", goal="the root of 2"))
OTHER = item("itemother", "add `print(total)`", failed("x = total", "ValueError: bad", goal="add up"))

# What else the fleet knows.
REST = [
    item(f"item{word}", f"add `{word}.strip()`", failed(f"print({word})", f"TypeError: {word} is no number"))
    for word in ("apples", "cars", "dates", "names", "rows", "values")
]


def test_it_says_what_got_others_past_the_same_failure() -> None:
    found = way_out(lore(FIX, OTHER, *REST), failed())
    assert found is not None
    assert found.id == "itemfix"
    assert "from math import sqrt" in found.text and "3 agents" in found.text
    assert "math" in found.names
    assert found.chance >= ways_out.LEAST_CHANCE


def test_it_is_silent_where_nothing_is_likely_enough_to_help() -> None:
    index = lore(OTHER, *REST)
    asked = failed("open(path)", "FileNotFoundError: no such file", goal="read a file")
    assert way_out(index, asked) is None
    assert way_out(LoreIndex(), asked) is None
    assert way_out(lore(FIX), failed(tool="shell")) is None


def test_what_passes_by_itself_has_no_way_out() -> None:
    asked = failed(error="503 Service Unavailable")
    assert asked.failure.transient
    assert way_out(lore(item("i", "add `wait`", asked)), asked) is None


def test_the_sessions_own_lesson_is_left_out() -> None:
    own = replace(FIX, support=1, agents=1, sessions=("mine#1",))
    assert way_out(lore(own, *REST), failed(session="mine")) is None
    assert way_out(lore(own, *REST), failed(session="theirs")) is not None


def test_an_item_that_another_one_replaced_is_not_said() -> None:
    assert ranked(lore(replace(FIX, superseded_by="another")), failed()) is None


def test_of_one_that_one_agent_taught_it_says_so() -> None:
    found = way_out(lore(replace(FIX, support=1, agents=1), *REST), failed())
    assert found is not None and "seen once" in found.text


def test_in_a_known_place_it_says_the_names_there() -> None:
    known = PlaceNames(9, {"car_makers": Ended(9, 0), "stadium": Ended(2, 0), "cars": Ended(0, 8)})
    asked = failed("select 1 from cars", "Table 'shop.cars' doesn't exist", "sql", goal="How many makers?")
    found = way_out(LoreIndex(), asked, known)
    assert found is not None
    assert found.id == PLACE_ID and found.names == ("car_makers", "stadium")
    assert way_out(LoreIndex(), asked, PlaceNames(2, known.names)) is None  # too little is known of it
    works = failed("select 1 from stadium", "Table 'shop.stadium' is locked", "sql")
    assert way_out(LoreIndex(), works, known) is None


@given(st.text(alphabet="ab'\"12 `.=_x", max_size=80), st.text(alphabet="ab12'\" ", max_size=30))
def test_no_literal_is_shown_that_the_session_does_not_hold(change: str, call: str) -> None:
    asked = failed(call, goal="")
    shown = masked(change, asked).replace("<value>", "")
    held = f"{call}\n{asked.error}".lower()
    for literal in re.findall(r"\w*\d\w+|\w+\d\w*|\d\d+", shown):
        assert literal.lower() in held


@given(st.text(max_size=600))
def test_the_text_is_short_and_the_answer_is_one(change: str) -> None:
    index = lore(item("i", f"add `sqrt` {change}".replace("\n", " "), failed()))
    found = way_out(index, failed())
    assert found == way_out(index, failed())
    assert found is None or len(found.text) <= MAX_TEXT
