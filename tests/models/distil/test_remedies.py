"""Calls that got past an error, counted over sessions."""

import pytest

from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.trajectory import Judgment, Step
from models.distil.distiller import distil
from models.memory.candidate import Candidate
from models.memory.item_state import ItemState
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


def test_a_change_of_a_value_counts_over_sessions_of_several_goals() -> None:
    changed = judgment("a", locked("stock", 60), SYNC, booked("stock", 30))
    assert [each.tool for each in counted(changed)] == ["book"]
    # The effect of one value is shown once sessions of other goals back it.
    assert items(changed) == []
    (item,) = items(changed, judgment("b", locked("stock", 60), booked("stock", 30)))
    assert (item.was, item.now) == (("length=60",), ("length=30",))


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


OTHER = sessions.call("bash", "tail -n 3 log", "done")


@pytest.mark.parametrize(("line", "kept"), [("n = 1", False), ("import n", True), ("n = data()", True)])
def test_a_number_that_was_made_up_for_a_name_is_no_way_past_its_failure(line: str, kept: bool) -> None:
    failed = sessions.call("python", "print(gcd(7, 2*n + 1))", error="NameError: name 'n' is not defined")
    worked = sessions.call("python", f"{line}\nprint(gcd(7, 2*n + 1))", "1")
    judged = sessions.judgment(failed, worked, OTHER, label="success", probability=1.0, ended=9)
    assert any(each.kind == "recovery" for each in distil(judged)) is kept
