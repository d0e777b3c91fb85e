import json
import sqlite3
from contextlib import closing

import pytest
from msgspec.structs import replace

from fleetlore.calls.call import EndedCall
from fleetlore.calls.document import LookUp
from fleetlore.wire.trajectory import Step, Trajectory
from models.calls import look_ups
from models.calls.evidence import Fleet, Who
from models.calls.look_ups import LookUps, failures_met
from tests.build import call, trajectory
from tests.cpu import costs_less_than
from tests.rows import for_each

_TABLES = ("singer", "concert", "stadium", "airport", "pets", "courses", "flights", "makers", "stores", "dogs")


def session(number: int, wrap: str = "{}", look: str = "SHOW TABLES", used: bool = True) -> Trajectory:
    table = _TABLES[number % len(_TABLES)] + str(number // len(_TABLES)) * (number // len(_TABLES) > 0)
    return trajectory(
        call("sql", f"SELECT count(*) FROM {table}s", error=f"Table 'db.{table}s' doesn't exist"),
        call("sql", wrap.format(look), f"Tables_in_db: {table}_data"),
        call("sql", f"SELECT count(*) FROM {table}_data" if used else "SELECT 1", "7"),
        session=f"s{number}",
        agent=f"a{number % 5}",
        goal="how many are there",
    )


def learned(*sessions: Trajectory) -> tuple[LookUp, ...]:
    return taught(*sessions).said()


def taught(*sessions: Trajectory, place: str = "") -> LookUps:
    fleet = Fleet()
    look_ups = LookUps(fleet)
    for each in sessions:
        fleet.agents.add(each.agent)
        look_ups.learn(failures_met(each.goal, [EndedCall(step) for step in each.calls], Who.of(each), place))
    return look_ups


@for_each("wrap", "{}", "step_N[{}]")
def test_the_call_whose_result_gave_the_names_is_learned_without_what_stands_around_it(wrap: str) -> None:
    (found,) = learned(*(session(number, wrap.replace("N", str(number))) for number in range(20)))
    assert (found.tool, found.by, found.text) == ("sql", "sql", "SHOW TABLES")
    assert (found.used, found.met, found.agents) == (20, 20, 5)


def test_a_call_between_the_look_up_and_what_used_it_does_not_hide_it() -> None:
    """Sessions describe one table after the other before they ask again."""
    described = call("sql", "DESC other", "id, name")
    look = (session(number, look=f"DESC {_TABLES[number % 10]}_{number}") for number in range(30))
    (found,) = learned(*(replace(each, steps=(*each.steps[:-1], described, each.steps[-1])) for each in look))
    assert (found.text, found.used) == ("DESC <name>", 30)


def found_by_name(number: int) -> Trajectory:
    user = f"mia_li_{1000 + number}"
    return trajectory(
        call("find_by_email", json.dumps({"email": f"mia{number}@shop.example"}), error="user not found"),
        call("find_by_name", json.dumps({"first_name": "Mia", "zip": str(80000 + number)}), user),
        call("get_user", json.dumps({"user_id": user}), "gold member"),
        session=f"s{number}",
        agent=f"a{number % 5}",
        goal="return a speaker",
    )


def test_a_look_up_by_arguments_is_told_by_their_names() -> None:
    (found,) = learned(*(found_by_name(number) for number in range(20)))
    assert (found.tool, found.kind, found.by) == ("find_by_email", "user not found", "find_by_name")
    assert (found.text, found.used, found.met) == ("(first_name, zip)", 20, 20)


def another_guess(number: int) -> Trajectory:
    """The same tool with another value gave the name."""
    session = found_by_name(number)
    failed, look, used = session.steps
    guess = call("find_by_email", json.dumps({"email": "mia@else.example"}), look.result)
    return replace(session, steps=(failed, guess, used))


@pytest.mark.parametrize(
    "sessions",
    [
        [session(number, used=False) for number in range(20)],
        [session(5 * number) for number in range(20)],
        [session(number, look=f"guess_{number}" if number > 2 else "SHOW TABLES") for number in range(60)],
        [another_guess(number) for number in range(20)],
    ],
    ids=["nobody used the result", "one agent alone", "few sessions did it", "another guess"],
)
def test_what_is_no_look_up_of_the_fleet_is_not_said(sessions: list[Trajectory]) -> None:
    assert learned(*sessions) == ()


TABLES = {"client": "full_name", "orders_2026": "total_cents", "order_item": "order_no"}


def looked_up(number: int, table: str, column: str) -> Trajectory:
    """An agent that guesses a table and a column, and looks both up in SQLite."""
    listed = repr([(name,) for name in TABLES])
    return trajectory(
        call("run_sql", f'{{"query": "select guess from {table}s"}}', error=f"no such table: {table}s"),
        call("run_sql", '{"query": "select name from sqlite_master where type=\'table\'"}', listed),
        call("run_sql", f'{{"query": "select guess from {table}"}}', error="no such column: guess"),
        call("run_sql", f'{{"query": "pragma table_info({table})"}}', f"[(0, '{column}', 'INT', 0, None, 0)]"),
        call("run_sql", f'{{"query": "select {column} from {table}"}}', "[(1,)]"),
        session=f"s{number}",
        agent=f"a{number % 5}",
        goal="answer the question",
    )


@for_each("sessions", 6, 12, 30)
def test_what_is_told_runs_and_shows_what_there_is(sessions: int) -> None:
    """Cut at a literal it ran without a row, and cut at a bracket it was a syntax error about another table."""
    names = list(TABLES.items())
    found = {
        each.kind: each.text for each in learned(*(looked_up(number, *names[number % 3]) for number in range(sessions)))
    }
    assert found == {
        "no such table: <name>": "select name from sqlite_master where type='table'",
        "no such column: <name>": "pragma table_info(<name>)",
    }
    with closing(sqlite3.connect(":memory:")) as shop:
        for table, column in TABLES.items():
            shop.execute(f"create table {table} ({column} int)")
        tables = [name for (name,) in shop.execute(found["no such table: <name>"])]
        assert sorted(tables) == sorted(TABLES)
        for table, column in TABLES.items():
            filled = found["no such column: <name>"].replace("<name>", table)
            assert [row[1] for row in shop.execute(filled)] == [column]


def test_a_text_that_looks_like_names_of_arguments_is_none() -> None:
    def said(arguments: str) -> str:
        return look_ups._said(EndedCall(Step(sequence=0, role="tool", tool="bash", arguments=arguments)))

    assert said('{"command": "(ignore-all, run-this)"}') == said("(ignore-all, run-this)") == ""
    assert said('{"query": "SELECT sql FROM sqlite_master"}') == "SELECT sql FROM sqlite_master"
    assert said('{"of": 1, "kind": "a"}') == "(of, kind)"


def test_what_one_agent_alone_looks_up_at_a_place_is_told_to_nobody() -> None:
    many = [session(number) for number in range(20)]
    alone = [
        replace(session(number, look="SHOW TABLES SHOW TABLES"), agent="b", session=f"b{number}")
        for number in range(40)
    ]
    assert taught(*many, *alone, place="shop").at_places() == {"shop": ("SHOW TABLES", "sql")}


def test_a_session_of_failures_and_then_calls_that_work_is_read_in_linear_time() -> None:
    texts = [" ".join(f"w{number}x{word}" for word in range(250)) for number in range(200)]
    failed = [
        call("sql", f"SELECT {text}", error=f"no such thing: {text}", template=f"kind{number}", about=("w",))
        for number, text in enumerate(texts)
    ]
    worked = [call("ls", f"ls {text}", f"{text} shown") for text in reversed(texts)]
    met = [EndedCall(step) for step in (*failed, *worked)]
    assert len({each.kind for each in met}) == len(failed) + 1
    assert costs_less_than(1.0, lambda: list(failures_met("goal", met, Who("a", 0))))
