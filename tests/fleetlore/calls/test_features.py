import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleetlore.calls.call import MAX_TOKENS, MadeCall
from fleetlore.calls.context import CallContext
from fleetlore.calls.model import features
from fleetlore.calls.places import Ended, PlaceNames
from tests.cpu import costs_less_than


@given(st.text(max_size=300), st.text(max_size=100), st.lists(st.tuples(st.text(max_size=60), st.booleans())))
def test_any_call_has_finite_features_each_time_the_same(text: str, goal: str, before: list[tuple[str, bool]]) -> None:
    context = CallContext(goal)
    for said, failed in before:
        context.record(MadeCall("tool", said), said, "error" if failed else None)
    found, again = (features(MadeCall("tool", text), context) for _ in range(2))
    assert np.array_equal(found.ids, again.ids)
    assert np.array_equal(found.values, again.values)
    assert found.ids.dtype == np.uint32
    assert len(found.ids) == len(found.values) >= found.of_kind > 0
    assert np.isfinite(found.values).all()


def test_the_tool_and_what_the_session_met_change_the_features() -> None:
    call = MadeCall("sql", "select name from car")
    fresh, failed = CallContext("g"), CallContext("g")
    failed.record(MadeCall("sql", "select * from car"), "no such table: car", "E")
    assert not np.array_equal(features(call, fresh).ids, features(call, failed).ids)
    assert not np.isin(features(MadeCall("sh", call.arguments), fresh).ids, features(call, fresh).ids).any()


def test_a_known_place_adds_what_is_known_of_the_names_by_how_long_it_is_known() -> None:
    call, context = MadeCall("sql", "select name from car"), CallContext("g")
    without, known = (
        features(call, context, place).ids for place in (None, PlaceNames(9, {"car": Ended(0, 4), "name": Ended(7, 0)}))
    )
    assert np.array_equal(known[: len(without)], without)
    assert len(known) == len(without) + 5
    levels = [tuple(features(call, context, PlaceNames(times, {})).ids) for times in (0, 1, 4, 5, 19, 20, 59, 60)]
    assert levels == [tuple(without)] + [levels[at] for at in (1, 1, 3, 3, 5, 5, 7)]
    assert len(set(levels)) == 5


def test_a_long_call_costs_no_more_than_a_bounded_one() -> None:
    call = MadeCall("t", "word_1 = 'x'; " * 100_000)
    assert len(call.tokens) <= MAX_TOKENS
    context = CallContext("goal " * 100_000)
    assert costs_less_than(0.1, lambda: features(call, context))


def test_names_are_lower_case_without_keywords_in_order() -> None:
    assert MadeCall("sql", "SELECT Name FROM Car WHERE Name = 3").names == ["name", "car"]
