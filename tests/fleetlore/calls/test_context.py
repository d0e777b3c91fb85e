from fleetlore.calls.call import MadeCall, is_closed, shows_names, world_of
from fleetlore.calls.context import ERROR_CHARACTERS, KEPT_CALLS, KEPT_NAMES, CallContext, place_in
from tests.cpu import costs_less_than
from tests.rows import for_each


def test_a_session_goes_from_its_first_call_through_failures_to_successes() -> None:
    context = CallContext("count the cars")
    assert context.state == "first"
    context.record(MadeCall("sql", "select * from car"), "no such table: car", "OperationalError")
    assert (context.state, context.run, context.failed) == ("after_failure", 1, {"car"})
    context.record(MadeCall("sql", "select * from cars"), "4 rows of car_maker")
    assert (context.state, context.run, context.calls, context.failures) == ("after_success", 0, 2, 1)
    assert "cars" in context.worked
    assert "car_maker" in context.seen


def test_an_error_tells_the_place_where_it_looked_for_a_name_of_the_call() -> None:
    context = CallContext("count the cars")
    context.record(MadeCall("sql", "SELECT * FROM Cars"), "Table 'shop.cars' doesn't exist", "E")
    assert context.place == "shop"
    context.record(MadeCall("sql", "SELECT id FROM makers"), "Unknown column 'id'", "E")
    assert context.place == "shop"
    context.record(MadeCall("sql", "SELECT id FROM lions"), "Table 'zoo.lions' doesn't exist", "E")
    assert context.place == "zoo"


@for_each(
    "call, error",
    ("SELECT * FROM shop.cars", "Table 'shop.cars' doesn't exist"),  # the call named it itself
    ("SELECT * FROM cars", "Table 'shop.trucks' doesn't exist"),  # not about this call
    ("cat data.csv", "'data.csv': no such file"),
    ("cat csv", "no such file: data.csv"),  # in no quotes
    ("SELECT 1", "x" * ERROR_CHARACTERS + "'shop.select'"),
)
def test_other_errors_tell_no_place(call: str, error: str) -> None:
    assert place_in(error, call) is None


def test_a_name_that_works_after_all_is_no_bad_name() -> None:
    context = CallContext("")
    context.record(MadeCall("sql", "select car"), "unknown column car", "E")
    context.record(MadeCall("sql", "select car from t"), "1")
    assert context.failed == set()


@for_each(
    "call, other",
    *(("select 'A'", other) for other in ("select 'a'", "select  'A'", "select 'A';", "select 'A' ")),
    ('{"limit":"1"}', '{"limit":1}'),  # they read alike
)
def test_a_call_that_differs_by_one_character_is_another(call: str, other: str) -> None:
    assert len({MadeCall(*each).trajectory_key for each in (("sql", call), ("sql", other), ("sh", call))}) == 3
    context = CallContext("")
    context.record(MadeCall("sql", call), "no such name: A", "E")
    context.record(MadeCall("sql", other), "1")
    assert context.tried == {("sql", call): 1, ("sql", other): 0}


def test_what_is_kept_is_bounded() -> None:
    context = CallContext("goal " * 10_000)
    for number in range(200):
        context.record(MadeCall("t", f"call {number}"), " ".join(f"name_{number}_{each}" for each in range(100)))
    assert len(context.tried) == KEPT_CALLS
    assert len(context.seen) < KEPT_NAMES + 3_000
    assert len(context.goal) == 1


STATEMENT = '{"query":"SELECT name FROM sqlite_master"}'


@for_each("name", "mcp__shop__query", "mcp__shop__run_sql", "mcp__db.example.com__sql", "mcp__a__b__sql")
def test_an_mcp_tool_is_of_the_open_world_until_the_operator_lists_it(name: str) -> None:
    assert not is_closed(name, STATEMENT)
    assert world_of(name) == "open"
    for listed in ([name], ["mcp__*"]):
        assert is_closed(name, STATEMENT, listed) and shows_names(name, STATEMENT, listed)
        assert world_of(name, listed) == "closed"
    assert not shows_names(name, '{"query":"SELECT name FROM customers"}', [name])
    assert not is_closed(name, STATEMENT, [name.replace("mcp__", "mcp__other_")])


def test_a_statement_of_another_tool_asks_a_database() -> None:
    assert is_closed("run_sql", STATEMENT) and world_of("run_sql") == "SQL"
    assert costs_less_than(0.01, lambda: is_closed("run_sql", f"DESC a{' ' * 8_000}b"))
