from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from fleetlore.calls.document import (
    CALL_BITS,
    KIND_BITS,
    ArgumentForms,
    Document,
    Lacked,
    LookUp,
    Place,
    Resent,
    quantised,
)
from fleetlore.calls.failed_call import FailedCall, FailureWords
from fleetlore.calls.lacked import failure_features
from fleetlore.calls.model import CallModel
from fleetlore.calls.ranker import LEAST
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.recall.index import LoreIndex
from fleetlore.recall.ways_out import MAX_TEXT, PLACE_ID, again, look_up_id, masked, ranked, way_out
from fleetlore.wire.lore import INSTEAD_OF, MemoryItem

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
    assert found.chance >= LEAST


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


def model(**known: object) -> CallModel:
    calls, kinds = (quantised(np.zeros(2**bits, np.float32)) for bits in (CALL_BITS, KIND_BITS))
    return CallModel(Document(calls, kinds, 0.0, {"sql": 99}, **known))  # type: ignore[arg-type]


def no_table(name: str, **known: object) -> FailedCall:
    return failed(f"select 1 from {name}", f"Table 'shop.{name}' doesn't exist", "sql", **known)


SHOW = LookUp("sql", "table <name> doesn't exist", "sql", "SHOW TABLES", 41, 60, 9)


def test_in_a_known_place_it_says_the_names_there() -> None:
    names = {"car_makers": (9, 0), "stadium": (2, 0), "cars": (0, 8)}
    at = model(places={"shop": Place(9, names), "new": Place(2, names)})
    asked = no_table("cars", goal="How many makers?")
    found = way_out(LoreIndex(), asked, at, "shop")
    assert found is not None
    assert found.id == PLACE_ID and found.names == ("car_makers", "stadium")
    assert way_out(LoreIndex(), asked, at, "new") is None  # too little is known of it
    assert way_out(LoreIndex(), asked, at, "elsewhere") is None
    works = failed("select 1 from stadium", "Table 'shop.stadium' is locked", "sql")
    assert way_out(LoreIndex(), works, at, "shop") is None


def test_after_the_names_of_a_place_those_like_the_failed_one_are_said_and_then_the_look_up() -> None:
    names = {f"table_{letter}": (9, 0) for letter in "abcdefghijkl"} | {"car_makers": (2, 0), "cars": (0, 8)}
    at = model(places={"shop": Place(9, names)}, look_ups=(SHOW,))
    told: list[str] = []
    said = []
    for _ in range(4):
        found = way_out(LoreIndex(), no_table("makers", goal="tables"), at, "shop", told)
        if found is not None:
            told += found.told
            said.append((found.id, found.text))
    card, like, look_up = said
    assert card[0] == like[0] == PLACE_ID
    assert "car_makers" not in card[1] and like[1] == "Known here, like `makers`: car_makers"
    assert look_up[0] == look_up_id(SHOW)


def test_at_an_unknown_place_it_says_where_others_looked_the_names_up() -> None:
    learned = model(look_ups=(SHOW,))
    found = way_out(LoreIndex(), no_table("cars"), learned)
    assert found is not None
    said = "After such a failure 41 of 60 sessions looked up what works: `SHOW TABLES`"
    assert found.text == said
    assert found.names == ("show", "tables")
    assert way_out(LoreIndex(), no_table("cars"), learned, told=(found.id,)) is None
    assert way_out(LoreIndex(), no_table("cars", seen={"show", "tables"}), learned) is None  # it was made already
    locked = failed("select 1 from cars", "database is locked", "sql")
    assert way_out(LoreIndex(), locked, learned) is None


def test_a_call_that_fails_again_and_again_is_told_each_thing_left_to_do_once_and_then_one_a_doubling() -> None:
    names = {"car_makers": (9, 0), "stadium": (2, 0), "cars": (0, 8)}
    at = model(places={"shop": Place(9, names)}, look_ups=(SHOW,))
    told: list[str] = []
    said = []
    for times in range(1, 9):
        found = again(LoreIndex(), no_table("cars", times=times), at, "shop", "", told)
        if found is not None:
            told += found.told
            said.append(found.text)
    assert said == [
        "Failed 2 times here and will again. Look it up: `SHOW TABLES`",
        "Failed 3 times here and will again. Known here: car_makers, stadium",
        "Failed 4 times here and will again. Look it up: `SHOW TABLES`",
        "Failed 8 times here and will again. Look it up: `SHOW TABLES`",
    ]
    made = again(LoreIndex(), no_table("cars", times=2, seen={"show", "tables"}), at, "shop")
    assert made is not None and made.text.endswith("Known here: car_makers, stadium")


def test_a_call_that_fails_again_is_told_what_usually_helps_where_the_fleet_knows_nothing() -> None:
    asked = failed(times=2)
    found = again(LoreIndex(), asked)
    assert found is not None and found.text.startswith("Failed 2 times here and will again. Define or import the name")
    assert again(LoreIndex(), failed(error="Exception: so it is", times=2)) is None
    assert again(LoreIndex(), failed(error="503 Service Unavailable", times=2)) is None
    assert again(LoreIndex(), asked, model(resent={asked.failure.class_: Resent(9, 10)})) is None


def test_an_argument_that_is_written_otherwise_than_in_calls_that_work_is_said() -> None:
    forms = (
        ArgumentForms("sql", "order", ("#a9999999",), ("#W9999999",), 20, 5),
        ArgumentForms("sql", "items", ("[9999]",), ("[9999]",), 9, 2),
    )
    asked = failed('{"order": "#9502127", "items": []}', "Error: order not found", "sql")
    asked = replace(asked, arguments=asked.text)
    found = way_out(LoreIndex(), asked, model(forms=forms))
    assert found is not None
    assert found.text == (
        "In calls that worked `order` was `#WNNNNNNN` (5 agents, 20 sessions; a: letters, N: a digit), here `#NNNNNNN`"
    )
    second = way_out(LoreIndex(), asked, model(forms=forms), told=tuple(found.told))
    assert second is not None and "`items` was `[NNNN]`" in second.text and "here `[]`" in second.text
    right = failed('{"order": "#W9502127", "items": ["1234"]}', "Error: order not found", "sql")
    assert way_out(LoreIndex(), replace(right, arguments=right.text), model(forms=forms)) is None


def test_a_look_up_by_another_tool_names_it() -> None:
    by_other = LookUp("sql", SHOW.kind, "schema", "tables <name>", 5, 9, 3)
    found = way_out(LoreIndex(), no_table("cars"), model(look_ups=(by_other,)))
    assert found is not None and "`schema tables <name>`" in found.text


def test_a_look_up_by_arguments_is_said_as_a_call() -> None:
    look_up = LookUp("find_by_email", "user not found", "find_by_name", "(first_name, zip)", 5, 9, 3)
    asked = failed('{"email": "mia@shop.example"}', "user not found", "find_by_email")
    found = way_out(LoreIndex(), asked, model(look_ups=(look_up,)))
    assert found is not None
    assert found.text == "After such a failure 5 of 9 sessions looked up what works: `find_by_name(first_name, zip)`"


def lacking(of: FailedCall, least: float) -> Lacked:
    """One name, `math`, that every feature of a failure speaks for."""
    features = np.array(sorted(failure_features(of.words)), "<u4")
    weights = np.tile(np.array([[100, 0]], np.int8), (len(features), 1))
    scales, biases = np.array([0.1, 0.0], "<f2"), np.array([0.0, -9.0], "<f2")
    parts = (each.tobytes() for each in (features, weights, scales, biases))
    return Lacked("python", ("math",), *parts, least, 31, 60)


def test_of_a_tool_with_enough_failures_it_says_the_names_that_the_session_lacks() -> None:
    found = way_out(LoreIndex(), failed(), model(lacked=(lacking(failed(), 0.5),)))
    assert found is not None and (found.names, found.item) == (("math",), None)
    assert found.text == (
        "Names that others brought in after failures like this: math (all that was missing in 31 of 60 cases)"
    )
    assert way_out(LoreIndex(), failed(), model(lacked=(lacking(failed(), 0.5),)), told=(found.id,)) is None


@pytest.mark.parametrize(("name", "said"), [("math", "Names that others"), ("schema", "After such a failure")])
def test_a_look_up_is_said_whole_and_not_by_its_names(name: str, said: str) -> None:
    asked = no_table("cars")
    lacked = structs.replace(lacking(asked, 0.5), tool="sql", names=(name,))
    look_up = LookUp("sql", SHOW.kind, "sql", "schema", 1, 60, 9)  # seldom made, so the names are likelier
    found = way_out(LoreIndex(), asked, model(look_ups=(look_up,), lacked=(lacked,)))
    assert found is not None and (found.names, found.text[: len(said)]) == ((name,), said)
    again = way_out(LoreIndex(), asked, model(look_ups=(look_up,), lacked=(lacked,)), told=(look_up_id(look_up),))
    assert (again is None) == (name == "schema")  # what was said whole is not said by its names
    if name == "schema":
        whole = structs.replace(look_up, text="show schema")
        said_whole = model(look_ups=(whole,), lacked=(lacked,))
        assert way_out(LoreIndex(), asked, said_whole, told=(look_up_id(whole),)) is None


@pytest.mark.parametrize(
    ("said", "known", "text"),
    [
        (": `car_data`", {}, "Instead: `car_data`: worked after this very error (2 agents)"),
        (" beside `cars`: `model`", {}, "Instead beside `cars`: `model`: worked after this very error (2 agents)"),
        (" beside `makers`: `model`", {}, None),  # the call is about another table
        (": `car_data`", {"seen": {"car_data"}}, None),  # the session knows it
        (": `car_data`", {"agents": 1}, None),
    ],
)
def test_names_that_worked_after_this_very_error_come_first(said: str, known: dict[str, Any], text: str | None) -> None:
    asked = no_table("cars", seen=known.get("seen", ()))
    fields = {"tool": "sql", "pattern": asked.failure.class_, "near": (), "agents": known.get("agents", 2)}
    item = replace(FIX, title=f"sql: Table{INSTEAD_OF}{said}", **fields)
    found = way_out(lore(item), asked, model(look_ups=(SHOW,)))
    assert found is not None
    names, _, look_up = found.text.rpartition("After such a failure")
    assert look_up.endswith("looked up what works: `SHOW TABLES`") and found.names[-1] == "tables"
    assert names == (f"{text}. " if text else "")


def test_a_call_that_mostly_works_when_it_is_sent_again_is_to_be_sent_again() -> None:
    asked = failed(error="OSError: the ledger is locked")
    found = way_out(LoreIndex(), asked, model(resent={asked.failure.class_: Resent(9, 10)}))
    assert found is not None and found.text == "Sent again unchanged, such a call worked in 9 of 10 sessions"
    assert way_out(LoreIndex(), asked, model(resent={asked.failure.class_: Resent(0, 10)})) is None


def test_what_is_said_to_pass_and_was_measured_not_to_has_a_way_out() -> None:
    asked = failed(error="503 Service Unavailable")
    lasting = {asked.failure.class_: Resent(0, 12)}
    assert way_out(LoreIndex(), asked, model(lacked=(lacking(asked, 0.5),))) is None
    assert way_out(LoreIndex(), asked, model(lacked=(lacking(asked, 0.5),), resent=lasting)) is not None


def test_what_got_several_agents_at_several_goals_past_this_very_failure_is_said() -> None:
    asked = failed("print(sqrt(16))\nprint(sum([1]))")
    proven = replace(FIX, pattern=asked.failure.class_, goals=3)
    learned = model(lacked=(lacking(asked, least=2.0),))  # the names are never likely enough
    found = way_out(lore(proven), asked, learned)
    assert found is not None and found.id == FIX.id
    assert found.text == "Past a failure like this (3 agents): add `from math import sqrt`"
    assert way_out(lore(proven), asked, learned, told=tuple(found.told)) is None
    assert way_out(lore(replace(proven, goals=2)), asked, learned) is None
    assert way_out(lore(replace(proven, agents=2)), asked, learned) is None
    made = failed("from math import sqrt\nprint(sqrt(16))")
    assert way_out(lore(replace(proven, pattern=made.failure.class_)), made, learned) is None


def test_where_these_names_are_not_likely_enough_nothing_else_is_said() -> None:
    prepares = item("itemprep", "", failed(), pattern=failed().failure.class_, near=())
    index = lore(FIX, OTHER, *REST, prepares)
    assert way_out(index, failed(), model(lacked=(lacking(failed(), 1.1),))) is None
    assert way_out(index, failed(), model()) == way_out(index, failed()) is not None


@given(st.text(alphabet="ab'\"12 `.=_x", max_size=80), st.text(alphabet="ab12'\" ", max_size=30))
def test_no_literal_is_shown_that_the_session_does_not_hold(change: str, call: str) -> None:
    asked = failed(call, goal="")
    shown = masked(change, asked).replace("<value>", "")
    held = f"{call}\n{asked.error}".lower()
    for literal in re.findall(r"\w*\d\w+|\w+\d\w*|\d\d+", shown):
        assert literal.lower() in held


@pytest.mark.parametrize("literal", ["472", "'472'", "5.47"])
def test_a_part_of_a_longer_literal_is_not_held(literal: str) -> None:
    assert "<value>" in masked(f"limit {literal}", failed("f(1472, 15.47, 5.472)", goal=""))
    assert masked("limit 1472", failed("f(1472)", goal="")) == "limit 1472"


def test_a_call_that_prepares_is_said_as_it_was_counted() -> None:
    arguments = {"path": "/etc/stock.toml", "mode": "append"}
    full = failure_of("write", arguments, "OSError", "No space left on device")
    asked = FailedCall("append", "OSError: No space left on device", full, goal="write the settings")
    title = 'write: No space left on device — disk.resize({"grow_gb":"<number>","volume":"data"})'
    prepares = replace(item("resize", "", asked), title=title, tool="write", pattern=full.class_, cause="c", near=())
    found = way_out(lore(prepares), asked)
    assert found is not None and found.text == f"Past a failure like this (3 agents): {title}"
    own = way_out(lore(replace(prepares, cause=None)), asked)
    assert own is not None and "<value>" in own.text


@given(st.text(max_size=600))
def test_the_text_is_short_and_the_answer_is_one(change: str) -> None:
    index = lore(item("i", f"add `sqrt` {change}".replace("\n", " "), failed()))
    found = way_out(index, failed())
    assert found == way_out(index, failed())
    assert found is None or len(found.text) <= MAX_TEXT
