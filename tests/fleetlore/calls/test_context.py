from hypothesis import given
from hypothesis import strategies as st

from fleetlore.calls.context import KEPT_CALLS, KEPT_NAMES, CallContext, normal, text_of


def test_an_object_is_read_as_a_person_would_write_it() -> None:
    assert text_of('{"query":"select 1\\nfrom t","limit":5}') == "query select 1\nfrom t\nlimit 5"


@given(st.text(max_size=80))
def test_any_text_can_be_read(text: str) -> None:
    assert isinstance(text_of(text), str)


def test_a_session_goes_from_its_first_call_through_failures_to_successes() -> None:
    context = CallContext("count the cars")
    assert context.state == "first"
    context.record("sql", "select * from car", "no such table: car", "OperationalError")
    assert (context.state, context.run, context.failed) == ("after_failure", 1, {"car"})
    context.record("sql", "select * from cars", "4 rows of car_maker")
    assert (context.state, context.run, context.calls, context.failures) == ("after_success", 0, 2, 1)
    assert "cars" in context.worked
    assert "car_maker" in context.seen


def test_a_name_that_works_after_all_is_no_bad_name() -> None:
    context = CallContext("")
    context.record("sql", "select car", "unknown column car", "E")
    context.record("sql", "select car from t", "1")
    assert context.failed == set()


def test_white_space_and_case_make_no_other_call() -> None:
    assert normal("sql", "SELECT  1;") == normal("sql", "select 1")
    assert normal("sql", "select 1") != normal("sh", "select 1")


def test_what_is_kept_is_bounded() -> None:
    context = CallContext("goal " * 10_000)
    for number in range(200):
        context.record("t", f"call {number}", " ".join(f"name_{number}_{each}" for each in range(100)))
    assert len(context.tried) == KEPT_CALLS
    assert len(context.seen) < KEPT_NAMES + 3_000
    assert len(context.goal) == 1
