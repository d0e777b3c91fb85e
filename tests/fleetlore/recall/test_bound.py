import gc
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fleetlore.recall.bound import Backing, Bound, backing_of_item, backing_of_pattern
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import MemoryItem, Pattern
from tests.build import memory_item

ENTRIES = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=2),
    st.tuples(st.sampled_from(["", "sql", "shell"]), st.integers(0, 5), st.integers(1, 40)),
)


def backing(tool: str = "", standing: float = 0.0, bytes: int = 1) -> Backing:
    return Backing(tool, standing, bytes)


@given(entries=ENTRIES, most=st.integers(1, 100), own=st.sampled_from(["sql", "shell"]), when=st.integers(0, 10))
def test_what_is_best_backed_is_held_whatever_the_order(
    entries: dict[str, tuple[str, int, int]], most: int, own: str, when: int
) -> None:
    bound, held = Bound(most), set()
    for number, (id, given_) in enumerate(entries.items()):
        if number == when:
            bound.prefer(own)
        gone = bound.take(id, backing(*given_))
        held = (held | {id}) - set(gone)
        assert sum(entries[each][-1] for each in held) <= most
        assert all((each in bound) == (each in held) for each in entries)
    assert bound.left_out == len(entries) - len(held)
    if when == 0:
        classes = {id: {own: 2, "": 1}.get(tool, 0) for id, (tool, *_) in entries.items()}
        best, room = sorted(entries, key=lambda id: (classes[id], entries[id][1], id), reverse=True), most
        for id in best:
            room -= entries[id][-1]
            if room < 0:
                break
            assert id in held


def test_it_says_whether_something_of_a_tool_was_left_out() -> None:
    bound = Bound(2)
    for number in range(4):
        bound.take(f"{number}", backing("shell", standing=number))
    assert not bound.prefer("sql")
    assert bound.prefer("shell")
    assert not bound.prefer("shell")  # it is known by now


def item(number: int, **fields: Any) -> MemoryItem:
    error = f'relation "table_{number}" does not exist in the schema of order {number}'
    call = f"select name, total from table_{number} where customer = {number} order by total"
    goal = f"Find the total of all orders of customer {number} and say which of them is not paid"
    texts = {
        "title": f"relation table_{number} does not exist",
        "description": f"After “{error}” another call worked: {call}",
        "content": f"Error: {error}\nChange: `{call}` → `select * from orders_{number}`\nGoal: {goal}",
        "when": f"The tool sql fails with: {error}",
        "pattern": f"{number:032x}",
        "sessions": tuple(f"{number:031x}{each}" for each in range(5)),
    }
    return memory_item(f"{number:032x}", tool="sql", **(texts | fields))


def strategy(number: int) -> MemoryItem:
    return replace(item(number), kind="strategy", task=f"task {number}")


def pattern(number: int) -> Pattern:
    ids = {"id": f"{number:032x}", "parent": f"{number + 1:032x}", "call": f"{number + 2:032x}"}
    error = {"error_class": "UndefinedTable", "template": f'relation "table_{number}" does not exist'}
    about: dict[str, Any] = {"shape": "query", "calls": number, "seen_by": (number,)}
    return Pattern(level="exact", tenant="default", tool="sql", **ids, **error, **about)


def test_the_estimate_is_above_the_memory_that_is_taken_but_not_by_far() -> None:
    # Runs in a new process: threads of earlier tests allocate memory in this one.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as own:
        for kind, low in (("item", 0.6), ("strategy", 0.5), ("pattern", 0.5)):
            taken, estimated = own.submit(taken_and_estimated, kind).result()
            assert low * estimated <= taken <= 1.1 * estimated, kind


def taken_and_estimated(kind: str) -> tuple[int, int]:
    """Bytes that 1,500 entries take in an index, and what the bound holds them to take."""
    make: Any = {"item": item, "strategy": strategy, "pattern": pattern}[kind]
    values = [make(number).to_json() for number in range(1500)]
    cls, head = (Pattern, backing_of_pattern) if kind == "pattern" else (MemoryItem, backing_of_item)
    gc.collect()
    tracemalloc.start()
    index, bound = LoreIndex(), Bound(1e9)
    for value in values:
        entry = cls.from_json(value)
        bound.take(entry.id, head(value))
        put = index.put_pattern if isinstance(entry, Pattern) else index.put_item
        put(entry)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return taken, sum(head(value).bytes for value in values)
