from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fleetlore.wire.principals import session_key
from fleetlore.wire.trajectory import CUT, Judgment, Label, Step
from models.distil.call_diff import distance
from models.distil.distiller import distil
from models.memory.candidate import Candidate
from sinks.collections import MAX_FIELD_BYTES
from tests import build as sessions
from tests.build import call
from tests.candidates import items_of as items
from tests.rows import for_each

GOAL = "count the cars"


def judgment(*steps: Step, label: Label = "abstained", **fields: Any) -> Judgment:
    values: dict[str, Any] = {"session": "s1", "agent": "a1", "goal": GOAL, "ended": 5.0}
    return sessions.judgment(*steps, label=label, source="none", **(values | fields))


def keys(session: str, agent: str = "a1") -> tuple[str, ...]:
    return (session_key(agent, session),)


NO_TABLE = call("sql", "SELECT count(*) FROM cars", error="Table 'car_1.cars' doesn't exist")
TABLES = call("sql", "SHOW TABLES", "cars_data, makers")
WORKS: dict[str, Any] = {"error_message": None, "pattern": None, "exact": None, "error_type": None, "result": "ok"}
UP = call("run", '{"cmd": "docker compose up web"}', error='Conflict. The container name "/web" is already in use')
GOOD = call("sql", "SELECT count(*) FROM cars_data", "[(406,)]")
RUN = '{"target": "api", "mode": "fast"}'
YAML, LOADED = "ModuleNotFoundError: No module named 'yaml'", "import yaml; dump(cars)"
NO_YAML = call("test", RUN, error=YAML)
INSTALL, FULL = call("install", '{"package": "pyyaml"}'), call("test", '{"target": "api", "mode": "full"}')


def test_a_changed_call_that_worked_becomes_a_recovery() -> None:
    (item,) = items(judgment(NO_TABLE, TABLES, GOOD))
    assert (item.kind, item.tool, item.pattern) == ("recovery", "sql", NO_TABLE.pattern)
    assert item.title == "sql: Table 'car_1.cars' doesn't exist — `cars` → `cars_data`"
    assert item.content == "Error: Table 'car_1.cars' doesn't exist\nChange: `cars` → `cars_data`"
    assert (item.was, item.now) == (("cars",), ("cars_data",))
    assert not item.danger
    assert (item.support, item.agents, item.sessions, item.last_seen) == (1, 1, keys("s1"), 5.0)


@for_each(
    "name, steps",
    ("it passed by itself", [NO_TABLE, call("sql", NO_TABLE.arguments)]),
    ("transient", [call("get", '{"id": "a b"}', error="503 Service Unavailable"), call("get", '{"id": "a c"}')]),
    ("never worked", [NO_TABLE, NO_TABLE]),
    ("another tool", [NO_TABLE, call("search", NO_TABLE.arguments)]),
    ("it worked before, not after", [GOOD, NO_TABLE]),
    ("about another thing", [call("get", '{"id": "W1234"}', error="not found"), call("get", '{"id": "W98"}')]),
    ("a step between made it work", [UP, call("run", '{"cmd": "docker rm -f web"}'), replace(UP, **WORKS)]),
    ("it works without the change", [NO_TABLE, TABLES, GOOD, call("sql", "x"), replace(NO_TABLE, **WORKS)]),
    ("nothing shows that it worked", [NO_TABLE, call("sql", GOOD.arguments, result="")]),
    ("what failed was cut", [replace(NO_TABLE, arguments=NO_TABLE.arguments + CUT), TABLES, GOOD]),
    ("what worked was cut", [NO_TABLE, TABLES, replace(GOOD, arguments=GOOD.arguments + CUT)]),
    ("two changes at once", [NO_YAML, INSTALL, FULL]),
    ("a call of another tool helped", [call("py", "import yaml; dump(car)", error=YAML), INSTALL, call("py", LOADED)]),
)
def test_what_is_no_recovery(name: str, steps: list[Step]) -> None:
    assert items(judgment(*steps)) == [], name


def test_a_change_that_helped_as_often_as_not_is_no_recovery() -> None:
    wrong = call("get", '{"id": "a", "kind": "car"}', error="no kind 'car'")
    right = call("get", '{"id": "a", "kind": "cars"}', "[1]")
    again = call("get", right.arguments, error="no kind 'car'")
    (item,) = items(judgment(wrong, right))
    assert item.now == ("kind=cars",)
    assert items(judgment(wrong, right, wrong, again, call("get", '{"id": "b"}', "[]"))) == []


def test_a_way_that_the_session_found_at_once_was_no_delay() -> None:
    wrong = call("get", '{"id": "a", "kind": "car"}', error="no kind 'car'")
    right = call("get", '{"id": "a", "kind": "cars"}', "[1]")
    for delayed, steps in ((False, (wrong, right)), (True, (wrong, INSTALL, right)), (True, (wrong, wrong, right))):
        assert [each.delayed for each in distil(judgment(*steps))] == [delayed]


def test_silence_as_the_last_step_counts_where_the_session_succeeded() -> None:
    (item,) = items(judgment(NO_TABLE, call("sql", GOOD.arguments, result=""), label="success"))
    assert item.kind == "recovery"


def test_another_value_is_told_once_sessions_of_several_goals_back_it() -> None:
    def session(id: str, goal: str, app: str) -> Judgment:
        wrong = call("deploy", f'{{"app": "{app}", "flag": "--fast"}}', error="unknown flag")
        return judgment(wrong, call("deploy", f'{{"app": "{app}", "flag": "--now"}}'), session=id, goal=goal)

    assert items(session("a", "ship", "api")) == items(session("a", "ship", "api"), session("b", "ship", "web")) == []
    (item,) = items(session("a", "ship", "api"), session("b", "deploy", "web"))
    assert "Change: `flag=--fast` → `flag=--now`" in item.content and item.support == 2


PI = "NameError: name 'pi' is not defined"
PROGRAM = "def area(n): return 2 * n\nassert area(3) == 7"


@for_each("failed, error, worked, told",
    ("print(pi * r)", PI, "print(math.pi * r)", "`pi` → `math.pi`"),
    ("print(pi)", PI, "import math\nprint(pi)", "add `import math`"),
    ("print(pi + x)", PI, "pi = data()\nprint(pi + x)", "add `pi = data()`"),
    ("tar --fast -xf a", "tar: unrecognized option '--fast'", "tar -xf a", "drop `--fast`"),
    ('{"zone":"Europe/Berln"}', "no zone 'Europe/Berln'", '{"zone":"Europe/Berlin"}',
     "`zone=Europe/Berln` → `zone=Europe/Berlin`"),
    ("lint . --ext ts", "Invalid option '--ext'", "lint .", "drop `--ext ts`"),
    ('{"query":"x","top_k":5}', "top_k: Extra inputs are not permitted", '{"query":"x"}', "drop `top_k=5`"),
    ("np.float(3)", "AttributeError: module 'numpy' has no attribute 'float'", "float(3)", "`np.float` → `float`"),
    ('{"to":"Done"}', "transition 'Done' is not available; available: 'Closed'", '{"to":"Closed"}',
     "`to=Done` → `to=Closed`"),
    ('{"selector":"#user"}', "no node for '#user'", '{"selector":"#username"}',
     "`selector=#user` → `selector=#username`"),
    # A path is somebody's, and so is what a page shows or a name that the program defines.
    ('{"selector":"text=Ann"}', "no node for 'text=Ann'", '{"selector":"text=Bob"}', None),
    ('{"zone":"/srv/of/ann"}', "no zone '/srv/of/ann'", '{"zone":"/srv/of/bob"}', None),
    ("print(pi + x)", PI, "print(x2 + x)", None),
    ("print(pi + x)", PI, "pi = 3\nprint(pi + x)", None),
    # To ask for less is no remedy.
    ("pytest tests/a.py tests/b.py -q", "FAILED tests/b.py: assert 1 == 2", "pytest tests/a.py -q", None),
    ("make test lint docs", "docs: 3 broken links", "make test lint", None),
    ("pytest tests -q", "1 failed: test_slow", "pytest tests -q -k fast", None),
    ("make lint docs", "docs: 3 broken links", "make lint docs || true", None),
    ("SELECT name, code FROM t", "Unknown column 'name' in 'field list'", "SELECT * FROM t", None),
    # A check of the program's own is mended by its author alone.
    (PROGRAM, "AssertionError: got 6", PROGRAM.replace("assert area(3) == 7", "res = area(3)\nprint(res)"), None),
    (PROGRAM, "AssertionError: got 6", PROGRAM.replace("2 * n", "2 * n + 1"), None),
)  # fmt: skip
def test_a_change_that_got_past_an_error_is_told_unless_it_is_a_tasks_own_or_asks_for_less(
    failed: str, error: str, worked: str, told: str | None
) -> None:
    found = items(judgment(call("run", failed, error=error), call("run", worked, "1")))
    assert [each.content.splitlines()[-1] for each in found] == ([] if told is None else [f"Change: {told}"])


@for_each(
    "failed, worked",
    ('{"email": "ann@example.org", "force": true}', '{"email": "bob@example.org", "force": true}'),
    ('{"user_name": "ann", "force": true}', '{"user_name": "bob", "force": true}'),
    ('{"ticket": "T1234", "force": true}', '{"ticket": "T1235", "force": true}'),
    ("send to ann@example.org now", "send to bob@example.org now"),
    ("SELECT a FROM t WHERE name = 'Ann'", "SELECT a FROM t WHERE name = 'Bob'"),
)
def test_somebody_elses_value_is_no_remedy_however_often_it_helped(failed: str, worked: str) -> None:
    steps = call("send", failed, error="no such recipient"), call("send", worked)
    assert items(*(judgment(*steps, session=str(n), agent=str(n), goal=str(n)) for n in range(5))) == []


def test_calls_are_compared_whole_and_not_at_all_where_they_were_cut() -> None:
    note = "x " * 400
    failed = call("pay", f'{{"a_note": "{note}", "mode": "fast"}}', error="payment does not add up")
    look = call("think", '{"thought": "why?"}')
    worked = call("pay", f'{{"a_note": "{note}", "mode": "full"}}')
    sessions_ = [judgment(failed, look, worked, session=name, goal=name) for name in "ab"]
    (item,) = items(*(Judgment(trajectory=each.trajectory.digest(), verdict=each.verdict) for each in sessions_))
    assert "Change: `mode=fast` → `mode=full`" in item.content
    # The call that worked was a different one.
    cut = [replace(each, arguments=each.arguments[:300] + CUT) for each in (failed, worked)]
    assert items(*(judgment(cut[0], look, cut[1], session=name, goal=name) for name in "ab")) == []


@for_each(
    "said",
    '{"thought": "I will now count the cars"}',
    """{'thought': "Next is name='count' kwargs={'of': 'cars'}"}""",
    '{"thought": "I will now count the ca',
)
def test_what_an_agent_says_to_itself_is_no_step(said: str) -> None:
    thought = call("think", said, "")
    made = call("bash", "mkdir cars", "")
    (way,) = distil(judgment(thought, made, GOOD, label="success", task="t"))
    assert [step.partition("(")[0] for step in way.calls] == ["bash", "sql"]


def test_a_session_of_calls_that_all_fail_otherwise_is_compared_in_part() -> None:
    failed = [call("run", f'{{"cmd": "{each} x y"}}', error=f"cannot {'a' * each} it") for each in range(1, 250)]
    worked = [call("run", f'{{"cmd": "x y {each} {each}"}}') for each in range(1, 250)]
    before = distance.cache_info()
    distil(judgment(*failed, *worked))
    after = distance.cache_info()
    assert 64 * 64 <= after.hits + after.misses - before.hits - before.misses < 3 * 64 * 64


def test_texts_are_bounded_and_on_one_line() -> None:
    error = "Table 'x'\n doesn't\texist " + "y" * 5000
    failed = call("sql", "SELECT " + "a\n, " * 480 + "FROM cars", error=error)
    judged = judgment(failed, call("sql", failed.arguments + "_data"), label="failure", task="t", goal="g\n" * 900)
    for candidate in distil(judged):
        assert len(candidate.to_json()) < 8000
        assert all("\n" not in text for text in (candidate.title, candidate.description, candidate.when))
        assert len(candidate.title) <= 200


def test_eight_ways_of_long_calls_in_any_script_fit_a_field_of_the_store() -> None:
    for letter in ("x", "語", "\x01", "😀"):
        steps = [call("sql", f"{number}{letter * 150}", letter * 400) for number in range(41)]
        (way,) = distil(judgment(*steps, label="success", task="t"))
        assert len(way.calls) == 24 and 8 * len(orjson.dumps(way.calls)) < MAX_FIELD_BYTES / 2, letter


TEXTS = st.sampled_from(
    ["SELECT a FROM b", "SELECT a FROM c", '{"id": "x"}', '{"id": "y", "f": 1}', "", "{", "\x00é漢"]
)
STEPS = st.builds(
    call,
    st.sampled_from(["sql", "get"]),
    TEXTS,
    st.sampled_from(["", "ok"]),
    st.sampled_from([None, None, "no such table 'b'", "503 Service Unavailable", "\n"]),
)
JUDGMENTS = st.builds(
    lambda steps, label, task, session, agent, ended: judgment(
        *steps, label=label, task=task, session=session, agent=agent, ended=ended
    ),
    st.lists(STEPS, max_size=6),
    st.sampled_from(["success", "failure", "abstained"]),
    st.sampled_from(["", "t1", "t2"]),
    st.text("abc", min_size=1, max_size=2),
    st.text("xy", min_size=1, max_size=1),
    st.floats(0, 1e9),
)


@given(JUDGMENTS)
def test_distilling_is_pure_and_survives_json(judged: Judgment) -> None:
    candidates = distil(judged)
    assert candidates == distil(Judgment.from_json(judged.to_json()))
    assert len({candidate.item_id for candidate in candidates}) == len(candidates)
    assert [Candidate.from_json(candidate.to_json()) for candidate in candidates] == candidates


@given(st.lists(JUDGMENTS, max_size=8), st.randoms(use_true_random=False))
def test_the_order_and_the_number_of_arrivals_change_nothing(judged: list[Judgment], random: Any) -> None:
    again = [*judged, *judged[:3]]
    random.shuffle(again)
    by_id = [{item.id: item for item in items(*each)} for each in (judged, again)]
    assert by_id[0] == by_id[1]


def test_the_first_attempt_without_the_error_shows_what_got_past_it() -> None:
    # The mode was wrong too, which came to light only when the package was there.
    wrong_mode = call("test", RUN, error="mode 'fast' is not supported")
    steps = NO_YAML, INSTALL, wrong_mode, FULL
    found = items(judgment(*steps), judgment(*steps, session="s2", goal="other"))
    changes = {item.pattern: (item.was, item.now) for item in found}
    assert changes == {wrong_mode.pattern: (("mode=fast",), ("mode=full",))}


WRONG = call("submit", "41", error="Your answer is wrong.")
RIGHT = call("submit", "42")


def test_an_error_that_says_only_that_it_failed_teaches_nothing() -> None:
    assert items(judgment(WRONG, WRONG, label="failure")) == []
    # Another answer is no repair of the first.
    assert items(judgment(WRONG, RIGHT, label="success")) == []
    # Nor does what was done before another answer, or the same, was right.
    assert items(judgment(WRONG, call("recount", "the cars"), call("submit", "41"), label="success")) == []


def test_an_error_is_quoted_with_its_class() -> None:
    failed = call("sql", "SELECT count(*) FROM cars", error="no such table: cars", error_type="OperationalError")
    (item,) = items(judgment(failed, GOOD))
    assert "Error: OperationalError: no such table: cars" in item.content


def test_changes_that_were_only_written_otherwise_are_one_item() -> None:
    error = "Table 'car_1.cars' doesn't exist"
    one = (call("sql", "SELECT a FROM cars", error=error), call("sql", "SELECT a FROM cars_data;"))
    other = (
        call("sql", "SELECT b, cars.c FROM cars", error=error),
        call("sql", "SELECT b, cars_data.c FROM cars_data"),
    )
    (item,) = items(judgment(*one), judgment(*other, session="s2", agent="a2"))
    assert (item.support, item.agents, item.sessions) == (2, 2, tuple(sorted((*keys("s1"), *keys("s2", "a2")))))


def test_a_session_that_was_shown_an_item_does_not_back_it() -> None:
    (item,) = items(judgment(NO_TABLE, GOOD))
    shown = replace(NO_TABLE, advice=(item.id,))
    assert items(judgment(shown, GOOD, session="s2")) == []
    (again,) = items(judgment(NO_TABLE, GOOD), judgment(shown, GOOD, session="s2"))
    assert (again.support, again.sessions) == (1, keys("s1"))
