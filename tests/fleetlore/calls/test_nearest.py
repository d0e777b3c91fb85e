from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetlore.calls.context import hash_of
from fleetlore.calls.failed_call import FailureWords
from fleetlore.calls.nearest import NearestRecoveries, examples, new_part
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.wire.lore import MemoryItem

_WORDS = st.lists(st.sampled_from(["root", "sum", "area", "of", "circle", "list", "tuple", "sqrt", "pi"]), max_size=6)


def near(goal: str, call: str, error: str) -> FailureWords:
    return FailureWords.of(goal, call, error, failure_of("python", call, None, error))


def item(id: str, *of: FailureWords, change: str = "add `import math`") -> MemoryItem:
    return MemoryItem(
        id=id,
        tenant="",
        kind="recovery",
        title="",
        description="",
        content=f"It failed with: x\nChange: {change}",
        when="",
        tool="python",
        near=tuple(each.to_text() for each in of),
    )


def ids(index: NearestRecoveries, asked: FailureWords, most: int = 3) -> list[str]:
    return [each.item.id for each in index.near(asked, most).examples]


SQRT = near("the root of a number", "sqrt(4)", "NameError: name 'sqrt' is not defined")
LOG = near("a logarithm", "log(4)", "NameError: name 'log' is not defined")
TABLE = near("how many cars", "select 1 from cars", "no such table: cars")


def test_the_nearest_come_first_and_what_shares_nothing_never() -> None:
    index = NearestRecoveries()
    for each in (item("log", LOG), item("sqrt", SQRT), item("table", TABLE)):
        index.put(each)
    assert ids(index, near("root", "print(sqrt(9))", "NameError: name 'sqrt' is not defined")) == ["sqrt", "log"]
    assert not ids(NearestRecoveries(), SQRT)


def test_the_cosine_of_the_same_failure_is_one() -> None:
    index = NearestRecoveries()
    index.put(item("sqrt", SQRT))
    index.put(item("table", TABLE))
    found = index.near(SQRT, 1)
    assert [round(float(part[0]), 6) for part in (found.goal, found.call, found.error)] == [1.0, 1.0, 1.0]


def test_each_example_of_an_item_is_found() -> None:
    index = NearestRecoveries()
    index.put(item("both", SQRT, LOG))
    assert ids(index, LOG) == ["both", "both"]
    index.put(item("both", LOG))
    assert ids(index, LOG) == ["both"]
    index.drop("both")
    index.drop("nobody")
    assert not ids(index, LOG) and not len(index)


def test_an_item_without_a_change_or_words_is_left_out() -> None:
    index = NearestRecoveries()
    index.put(item("silent", SQRT, change=""))
    index.put(item("wordless"))
    assert not len(index)


@given(st.lists(st.tuples(_WORDS, _WORDS), min_size=1, max_size=12), st.randoms(), _WORDS)
def test_it_is_a_function_of_the_set_of_items(pairs, shuffled, asked) -> None:  # type: ignore[no-untyped-def]
    items = [
        item(f"i{place}", near(" ".join(goal), " ".join(call), "E: x")) for place, (goal, call) in enumerate(pairs)
    ]
    straight, other = NearestRecoveries(), NearestRecoveries()
    for each in items:
        straight.put(each)
    extra = [item(f"x{place}", near("square root", "list", "E: y")) for place in range(5)]
    mixed = [*items, *extra]
    shuffled.shuffle(mixed)
    for each in mixed:
        other.put(each)
    for each in extra:
        other.drop(each.id)
    question = near(" ".join(asked), "sqrt", "E: x")
    assert ids(straight, question) == ids(other, question)


def test_what_came_with_a_change() -> None:
    assert new_part("`cars` → `cars_data`, add `limit`, drop `where x`") == "`cars_data` `limit`"
    (example,) = examples(item("i", SQRT, change="`sqrt(4)` → `math.sqrt(4)`"))
    assert (example.came, example.added) == ({hash_of("math.sqrt")}, {"math.sqrt"})
    (example,) = examples(item("i", SQRT, change="add `from math import sqrt`"))
    assert (example.came, example.added) == ({hash_of("math"), hash_of("sqrt")}, {"math"})
