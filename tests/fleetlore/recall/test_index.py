from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import MemoryItem, Pattern
from tests.build import memory_item


def exact(id: str, **fields: Any) -> Pattern:
    values: dict[str, Any] = {"tool": "sql", "call": "call-1", "parent": f"class-{id}"}
    values |= {"failures": 1, "calls": 1, "sessions": 1}
    return Pattern(id=id, tenant="default", **({"level": "exact"} | values | fields))


def recovery(id: str, **fields: Any) -> MemoryItem:
    change = {"was": ("table=a",), "now": ("table=b",)}
    return memory_item(id, **({"tool": "sql", "pattern": "class-1"} | change | fields))


def test_each_kind_of_lore_is_found_by_what_an_agent_asks(index: LoreIndex) -> None:
    index.put_pattern(exact("p"))
    index.put_pattern(exact("w", transient=True))
    index.put_pattern(exact("wc", level="class", transient=True))
    index.put_pattern(Pattern(id="call-1", level="call", tenant="default", tool="sql", calls=9))
    index.put_item(recovery("r"))
    index.put_item(recovery("s", kind="strategy", task="refund"))

    assert [each.id for each in index.failures_of_call("call-1")] == ["p"]
    assert [each.id for each in index.transient_of_call("call-1")] == ["w"]
    assert [each.id for each in index.transient_of_tool("sql")] == ["wc"]
    assert [each.id for each in index.recoveries("class-1")] == ["r"]
    assert [each.id for each in index.strategies("s")] == ["s"]
    assert index.failures_of_call("unheard of") == ()


def test_an_item_that_moves_to_another_pattern_is_found_there_only(index: LoreIndex) -> None:
    index.put_item(recovery("r"))
    index.put_item(recovery("r", pattern="class-2"))
    assert index.recoveries("class-1") == ()
    assert [each.id for each in index.recoveries("class-2")] == ["r"]


def test_a_recovery_without_a_change_is_not_read(index: LoreIndex) -> None:
    for part in ((), ("`Maker`",), ("n=1", "m=2")):
        index.put_item(recovery("r", was=part, now=part))
        assert index.recoveries("class-1") == index.recoveries_of_tool("sql") == ()


def test_what_is_derived_is_worked_out_once_until_the_lore_changes(index: LoreIndex) -> None:
    asked: list[str] = []

    def work(index: LoreIndex, *key: str) -> int:
        asked.append(key[0])
        return len(index.patterns)

    assert [index.derived(work, "a"), index.derived(work, "a")] == [0, 0]
    assert asked == ["a"]
    index.put_pattern(Pattern(id="p", level="tool", tenant="default", tool="sql"))
    assert [index.derived(work, "a"), index.derived(work, "sql")] == [0, 1]
    assert asked == ["a", "sql"]
    index.put_pattern(Pattern(id="q", level="tool", tenant="default", tool="sql"))
    assert [index.derived(work, "sql"), index.derived(work, "sql")] == [2, 2]
    index.forget("q")
    assert [index.derived(work, "sql"), index.derived(work, "a")] == [1, 0]
    assert asked == ["a", "sql", "sql", "sql"]
    index.put_item(recovery("r"))
    assert [index.derived(work, "a"), index.derived(work, "a")] == [1, 1]
    assert asked == ["a", "sql", "sql", "sql", "a"]


def test_what_is_derived_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetlore.recall.index.MAX_DERIVED", 2)
    index = LoreIndex()
    asked: list[str] = []

    def work(index: LoreIndex, *key: str) -> None:
        asked.append(key[0])

    for key in "ababca":
        index.derived(work, key)
    assert asked == ["a", "b", "c", "a"]


def test_agents_count_before_sessions() -> None:
    def standing(agents: int, support: int, against: int = 0) -> float:
        return memory_item("x", agents=agents, support=support, against=against).standing()

    assert standing(1, 1) < standing(1, 2) < standing(1, 500) < standing(2, 2) < standing(2, 3) < standing(3, 3)
    assert standing(4, 8, against=4) == standing(2, 4)
    assert standing(3, 6, against=3) < standing(3, 6)


ACTS = st.sampled_from(["put", "drop", "revoke", "undo", "distrust", "trust"])


@given(st.lists(st.tuples(ACTS, st.sampled_from("prx"), st.integers(1, 3)), max_size=30))
def test_what_is_hidden_is_as_if_it_were_not_there_and_then_as_it_is_by_then(steps: list[tuple[str, str, int]]) -> None:
    index, known, revoked = LoreIndex(), {}, set()
    distrusted: set[int] = set()
    for what, id, number in steps:
        # A pattern goes once all who met it are distrusted, an item with one of those whose words it says.
        by = {number, 3}
        if what == "put":
            known[id] = number
            if id == "p":
                index.put_pattern(exact(id, failures=number, seen_by=tuple(by)))
            else:
                index.put_item(recovery(id, support=number, said_by=tuple(by)))
        elif what == "drop":
            known.pop(id, None)
            index.forget(id)
        elif what == "revoke":
            revoked.add(id)
            index.revoke(id)
        elif what == "undo":
            revoked.discard(id)
            index.revoke(id, on=False)
        elif what == "distrust":
            distrusted.add(number)
            index.distrust(number)
        else:
            distrusted.discard(number)
            index.undo_distrust(number)
        silenced = {
            id
            for id, number in known.items()
            if (all if id == "p" else any)(each in distrusted for each in (number, 3))
        }
        shown = {id: number for id, number in known.items() if id not in revoked | silenced}
        assert {each.id: each.failures for each in index.failures_of_call("call-1")}.items() <= shown.items()
        assert {each.id: each.support for each in index.recoveries("class-1")}.items() <= shown.items()
        assert index.patterns.keys() | index.items.keys() == shown.keys()
    index.retain()
    for id in revoked:
        index.revoke(id, on=False)
    for agent in distrusted:
        index.undo_distrust(agent)
    assert not index.patterns and not index.items
