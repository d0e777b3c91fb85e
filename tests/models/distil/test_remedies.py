"""What got past an error, counted over sessions and over names."""

from __future__ import annotations

from itertools import permutations

import pytest

from fleetlore.fingerprint.fingerprint import cause_of, failure_of
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.trajectory import Judgment, Step
from models.distil.distiller import distil
from models.memory.candidate import Candidate
from models.memory.item_state import ItemState
from models.memory.quality import is_junk
from tests import build as sessions


def call(tool: str, arguments: str, error: str | None = None, kind: str = "1") -> Step:
    return sessions.call(tool, arguments, error=error, error_type=kind)


def locked(calendar: str, length: int = 30) -> Step:
    return call(
        "book", f'{{"calendar":"{calendar}","length":{length}}}', f"423 Locked: calendar {calendar} is being edited"
    )


def booked(calendar: str, length: int = 30) -> Step:
    return call("book", f'{{"calendar":"{calendar}","length":{length}}}')


SYNC, PING = call("sync", '{"range":"month"}'), call("ping", '{"host":"main"}')


def judgment(session: str, *steps: Step) -> Judgment:
    return sessions.judgment(
        *steps, label="abstained", session=session, agent=f"agent of {session}", goal=f"book {session}", ended=5.0
    )


def counted(*judgments: Judgment) -> list[Candidate]:
    return [each for one in judgments for each in distil(one) if each.kind == "recovery"]


def items(*judgments: Judgment) -> list[MemoryItem]:
    return merged(counted(*judgments))


def merged(candidates: list[Candidate]) -> list[MemoryItem]:
    states: dict[str, ItemState] = {}
    for each in candidates:
        states.setdefault(each.item_id, ItemState()).merge(each)
    found = [item for state in states.values() if (item := state.to_item()) is not None]
    return sorted(found, key=lambda item: (-item.support, item.id))


def test_one_cause_whatever_it_is_about_and_another_for_another_error() -> None:
    def cause(calendar: str, error: str) -> str:
        arguments = {"calendar": calendar}
        return cause_of(failure_of("book", arguments, "423", error), arguments)

    assert cause("stock", "calendar stock is locked") == cause("orders", "calendar orders is locked")
    assert cause("stock", "no module named 'yaml'") == cause("stock", "no module named 'pandas'")
    assert cause("stock", "calendar stock is locked") != cause("stock", "calendar stock has no time zone")


def test_sessions_about_different_things_back_one_remedy() -> None:
    (item,) = items(
        judgment("a", locked("stock"), SYNC, booked("stock")), judgment("b", locked("orders"), SYNC, booked("orders"))
    )
    assert (item.kind, item.support, item.against) == ("recovery", 2, 0)
    assert item.remedy == {"tool": "sync", "arguments": {"range": "month"}, "open": []}
    assert "Then: sync" in item.content
    assert "Got past it: the same call again" in item.content
    assert is_junk(item) is None


def test_what_was_there_by_chance_is_told_apart_by_other_sessions() -> None:
    both = judgment("a", locked("stock"), PING, SYNC, booked("stock"))
    alone = judgment("b", locked("orders"), PING, locked("orders"), SYNC, booked("orders"))
    again = judgment("c", locked("mail"), PING, locked("mail"), SYNC, booked("mail"))
    assert {item.remedy and item.remedy["tool"] for item in items(both)} == {"sync", "ping"}
    (sync,) = items(both, alone, again)
    assert (sync.kind, sync.remedy and sync.remedy["tool"], sync.support, sync.against) == ("recovery", "sync", 3, 0)


def test_a_preparation_gets_no_credit_where_the_call_was_changed() -> None:
    changed = judgment("a", locked("stock", 60), SYNC, booked("stock", 30))
    assert [each.remedy and each.remedy["tool"] for each in counted(changed)] == ["book"]
    # What one value did is told once sessions of other goals back it.
    assert items(changed) == []
    (item,) = items(changed, judgment("b", locked("stock", 60), booked("stock", 30)))
    assert item.remedy == {"tool": "book", "change": ["length", 60, 30]}
    assert (item.was, item.now) == (("length=60",), ("length=30",))


def test_a_tool_without_effect_gets_no_credit() -> None:
    think = call("think", '{"thought":"what now?"}')
    # It stood before the error as well.
    before = judgment("a", think, locked("stock"), think, booked("stock"))
    # The same call worked without it: the error passes by itself.
    needless = judgment("b", locked("stock"), booked("stock"), PING, locked("stock"), think, booked("stock"))
    assert [each.side for each in counted(before)] == ["failure"]
    assert counted(needless) == []
    assert [each.side for each in counted(judgment("c", locked("stock"), think, booked("stock")))] == ["success"]


def test_values_of_one_session_are_left_open() -> None:
    def session(id: str, user: str) -> Judgment:
        login = call("login", f'{{"user":"{user}","scope":"full","ticket":"T-{id}-1234"}}')
        return judgment(id, locked("stock"), login, booked("stock"))

    (item,) = items(session("a", "ann"), session("b", "bob"))
    assert item.support == 2 and item.remedy == {
        "tool": "login",
        "arguments": {"user": "<user>", "scope": "full", "ticket": "<ticket>"},
        "open": ["ticket", "user"],
    }
    assert "ann" not in item.content and "1234" not in item.content


def test_a_call_of_the_same_tool_prepares_too() -> None:
    query = "SELECT a FROM t"
    steps = [sessions.call("sql", query, error="no database selected"), sessions.call("sql", "USE shop")]
    (item,) = items(judgment("a", *steps, sessions.call("sql", query, "1")))
    assert item.remedy == {"tool": "sql", "arguments": "USE shop", "open": []}


def test_what_the_error_names_is_left_open() -> None:
    def session(id: str, module: str) -> Judgment:
        failed = call("run", '{"script":"main.py"}', f"No module named '{module}'", "ModuleNotFoundError")
        return judgment(id, failed, call("pip", f'{{"package":"{module}"}}'), call("run", '{"script":"main.py"}'))

    (item,) = items(session("a", "yaml"), session("b", "pandas"))
    assert item.support == 2
    assert item.remedy is not None
    assert item.remedy["open"] == ["package"]


def test_a_way_that_never_led_anywhere_and_a_passing_fault_teach_nothing() -> None:
    other = call("book", '{"calendar":"stock","length":30}', "ValueError: no time zone", "ValueError")
    assert items(judgment("a", locked("stock"), SYNC, other)) == []
    transient = call("book", '{"calendar":"stock","length":30}', "503 Service Unavailable", "503")
    assert items(judgment("a", transient, SYNC, booked("stock"))) == []


def test_a_value_with_a_slash_is_told_where_it_is_no_path() -> None:
    def session(name: str, wrong: str, right: str) -> Judgment:
        made = [
            call("now", f'{{"zone":"{zone}"}}', error) for zone, error in ((wrong, f"no zone '{wrong}'"), (right, None))
        ]
        return judgment(name, *made)

    (item,) = items(session("a", "Europe/Berln", "Europe/Berlin"))
    assert "`zone=Europe/Berln` → `zone=Europe/Berlin`" in item.title
    assert items(session("b", "/srv/of/ann", "/srv/of/bob")) == []


def test_the_order_of_sessions_decides_nothing() -> None:
    candidates = counted(
        judgment("a", locked("stock"), PING, SYNC, booked("stock")),
        judgment("b", locked("orders"), PING, locked("orders"), SYNC, booked("orders")),
        judgment("c", locked("mail"), PING, locked("mail"), PING, locked("mail")),
    )
    assert len(candidates) > 4
    first = merged(candidates)
    for order in list(permutations(candidates))[:60]:
        assert merged([*order, order[0]]) == first


OTHER = sessions.call("bash", "tail -n 3 log", "done")


@pytest.mark.parametrize(("line", "kept"), [("n = 1", False), ("import n", True), ("n = data()", True)])
def test_a_number_that_was_made_up_for_a_name_is_no_way_past_its_failure(line: str, kept: bool) -> None:
    failed = sessions.call("python", "print(gcd(7, 2*n + 1))", error="NameError: name 'n' is not defined")
    worked = sessions.call("python", f"{line}\nprint(gcd(7, 2*n + 1))", "1")
    judged = sessions.judgment(failed, worked, OTHER, label="success", probability=1.0, ended=9)
    assert any(each.kind == "recovery" for each in distil(judged)) is kept
