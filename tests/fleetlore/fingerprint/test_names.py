from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.fingerprint.names import MAX_KIND, failure_kind, kind_of, spelled
from tests import build
from tests.cpu import costs_less_than
from tests.rows import for_each


@for_each(
    "error, call, names",
    ("no such table: 'cars'", "SELECT 1 FROM cars", ("cars",)),
    ("Table 'shop.Cars' doesn't exist", "SELECT 1 FROM cars", ("cars",)),
    ("bash: jq: command not found", "cat x | jq .", ("jq",)),
    ("KeyError: 'user_id'", "row['user_id']", ("user_id",)),
    ("cannot open '/srv/app/settings.toml'", '{"path": "/srv/app/settings.toml"}', ("settings",)),
    ("ModuleNotFoundError: No module named yaml", "import yaml", ("yaml",)),
    ("no such table: 'cars'", "SELECT 1 FROM trucks", ()),
    ("no such table: 'cars'", "SELECT 1 FROM old2cars", ()),
    ("no such table: 'cars'", "SELECT 2cars", ("cars",)),
    ("permission denied", "rm permission", ()),
)
def test_names_of_the_error_that_stand_in_the_call(error: str, call: str, names: tuple[str, ...]) -> None:
    failure = failure_of("tool", call, None, error)
    assert failure_kind(failure.error_class, failure.template, error, call).names == names


def test_the_kind_of_an_exception_names_its_class_where_its_text_says_little() -> None:
    assert failure_kind("AssertionError", "", "", "assert x").kind == "assertionerror"
    assert failure_kind("SyntaxError", "invalid syntax", "invalid syntax", "x y").kind == "invalid syntax"
    assert failure_kind("KeyError", "'user_id'", "'user_id'", "row['user_id']").kind == "keyerror: <name>"


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_error_has_a_kind_of_bounded_length(error: str, call: str) -> None:
    failure = failure_of("tool", call, None, error or "x")
    found = failure_kind(failure.error_class, failure.template, error, call)
    assert len(found.kind) <= MAX_KIND
    assert list(found.names) == sorted(set(found.names))


def test_long_texts_take_no_longer_than_cut_ones() -> None:
    error = "Error: '" * 100_000
    assert costs_less_than(0.05, lambda: failure_kind("ValueError", "x" * 500, error, error))


@for_each(
    "name, call, shown",
    ("readme", '{"path": "docs/README.md"}', "README.md"),
    ("cars", "SELECT 1 FROM shop.Cars", "Cars"),
    ("cars", "SELECT scars, Cars.id", "Cars"),
    ("gone", "SELECT 1", "gone"),
)
def test_a_name_is_shown_as_the_call_spells_it(name: str, call: str, shown: str) -> None:
    assert spelled(name, call) == shown


def test_a_name_is_sought_without_a_pattern_of_its_own() -> None:
    call = "SELECT 1 FROM " + ", ".join(f"Table_{number}" for number in range(1_000))
    assert costs_less_than(0.05, lambda: [spelled(f"table_{number}", call) for number in range(1_000)])


def test_a_step_is_not_recognised_again() -> None:
    step = build.call("sql", "SELECT * FROM cars", error="no such table: cars")
    assert kind_of(step) == ("no such table: <name>", ("cars",))
    carried = replace(step, template="no such view: tours", about=("tours",))
    assert kind_of(carried) == ("no such view: <name>", ("tours",))
    assert kind_of(replace(step, template="", about=())) == kind_of(step), "a step of an earlier release"
