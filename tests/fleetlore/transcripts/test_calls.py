"""Every result goes to the call that it answers, however the ids of a turn are chosen, and no call is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetlore.transcripts.calls import OpenCalls

TOOLS = ("search", "book", "pay")
# How the makers of logs choose the ids of a turn's calls.
SCHEMES = {
    "unique": lambda turn, number, tool: f"call_{turn}_{number}",
    "of the turn": lambda turn, number, tool: f"call_{number}",
    "none": lambda turn, number, tool: "",
    "one for all": lambda turn, number, tool: "0",
    "the tool's": lambda turn, number, tool: tool,
}
turns = st.lists(st.lists(st.sampled_from(TOOLS), max_size=5), max_size=5)


@given(turns, st.sampled_from(sorted(SCHEMES)), st.booleans())
def test_results_in_order_answer_their_calls(turns: list[list[str]], scheme: str, named: bool) -> None:
    left: list[object] = []
    calls = OpenCalls[tuple[int, int]](left.append)
    for turn, tools in enumerate(turns):
        ids = [SCHEMES[scheme](turn, number, tool) for number, tool in enumerate(tools)]
        for number, (id, tool) in enumerate(zip(ids, tools, strict=True)):
            calls.add(id, tool, (turn, number))
        for number, (id, tool) in enumerate(zip(ids, tools, strict=True)):
            assert calls.pop(id, tool if named else "") == (turn, number)
    assert not left and not len(calls)


@given(turns, st.sampled_from(sorted(SCHEMES)), st.data())
def test_a_turn_that_was_interrupted_takes_no_result_of_a_later_one(
    turns: list[list[str]], scheme: str, data: st.DataObject
) -> None:
    left: list[tuple[int, int]] = []
    calls = OpenCalls[tuple[int, int]](left.append)
    answered = 0
    for turn, tools in enumerate(turns):
        calls.end_turn()
        ids = [SCHEMES[scheme](turn, number, tool) for number, tool in enumerate(tools)]
        for number, (id, tool) in enumerate(zip(ids, tools, strict=True)):
            calls.add(id, tool, (turn, number))
        for number in range(data.draw(st.integers(0, len(tools)))):
            assert calls.pop(ids[number], tools[number] if scheme == "none" else "") is not None
            answered += 1
    calls.close()
    assert answered + len(left) == sum(map(len, turns)) and len(set(left)) == len(left)


@given(st.permutations(range(4)))
def test_unique_ids_are_answered_in_any_order(order: list[int]) -> None:
    calls = OpenCalls[int](lambda call: None)
    for number in range(4):
        calls.add(f"c{number}", "search", number)
    assert [calls.pop(f"c{number}") for number in order] == order
    assert calls.pop("c0") is None


def test_a_result_names_its_tool_where_ids_do_not_help() -> None:
    calls = OpenCalls[str](lambda call: None)
    for tool in TOOLS:
        calls.add("", tool, tool)
    assert [calls.pop("", "pay"), calls.pop("book"), calls.pop("call_of_the_server")] == ["pay", "book", "search"]


def test_the_oldest_call_is_left_when_there_are_too_many() -> None:
    left: list[int] = []
    calls = OpenCalls[int](left.append, limit=2)
    for number in range(4):
        calls.add(str(number), "search", number)
    assert left == [0, 1] and calls.pop("3") == 3 and calls.pop("0") is None
