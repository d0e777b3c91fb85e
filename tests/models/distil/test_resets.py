"""Failures that take what was prepared: learned from sessions, told apart from those that only stood beside."""

from __future__ import annotations

from itertools import permutations

from fleetlore.fingerprint.fingerprint import failure_of, kind_of
from fleetlore.testing import sessions
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.trajectory import Judgment, Step
from models.distil.distiller import distil
from models.memory.candidate import Candidate
from models.memory.item_state import ItemState

RESTARTED = "host ci-9 was restarted at 03:12:44: its sessions and all temporary state are gone"


def call(tool: str, error: str | None = None) -> Step:
    return sessions.call(tool, error=error, error_type="1")


def prepared(number: int) -> list[Step]:
    """A call that needs a preparation, which is found, and works."""
    return [call(f"work{number}", f"{number * 'very '}locked"), call(f"unlock{number}"), call(f"work{number}")]


def session(id: str, *steps: Step) -> Judgment:
    return sessions.judgment(*steps, label="abstained", session=id, ended=5.0)


def restarted(id: str) -> Judgment:
    """Two preparations are gone after a restart that another tool meets; a refusal beside it takes neither."""
    return session(
        id,
        *prepared(1),
        *prepared(2),
        call("other", "refused"),
        call("work1"),
        call("work2"),
        call("mail", RESTARTED),
        *prepared(1),
        *prepared(2),
    )


def losses(judgment: Judgment) -> dict[str, Candidate]:
    return {each.when: each for each in distil(judgment) if each.title.endswith("prepare again")}


def test_what_was_prepared_before_a_restart_was_gone_and_a_refusal_kept_it() -> None:
    found = losses(restarted("s"))
    sides = {when.partition(" ")[0]: each.side for when, each in found.items()}
    assert (sides["host"], sides["refused"]) == ("success", "failure")
    assert "2 of 2" in next(each.content for each in found.values() if each.side == "success")


def test_one_preparation_that_is_gone_says_nothing_for_it_may_have_worn_off() -> None:
    assert losses(session("s", *prepared(1), call("mail", RESTARTED), *prepared(1))) == {}


def test_what_was_prepared_anew_in_time_says_nothing() -> None:
    steps = [*prepared(1), *prepared(2), call("mail", RESTARTED)]
    steps += [call(name) for name in ("unlock1", "unlock2", "work1", "work2")]
    assert losses(session("s", *steps)) == {}


def test_the_kind_of_a_failure_is_the_same_whichever_tool_met_it_and_whatever_host() -> None:
    other = RESTARTED.replace("ci-9", "runner-3").replace("03:12:44", "17:40:09")
    assert kind_of(failure_of("mail", "{}", "1", RESTARTED)) == kind_of(failure_of("push", "{}", "1", other))
    assert kind_of(failure_of("mail", "{}", "1", RESTARTED)) != kind_of(failure_of("mail", "{}", "1", "refused"))


def test_sessions_meet_in_one_item_in_any_order() -> None:
    found = [next(each for each in losses(restarted(f"s{n}")).values() if each.side == "success") for n in range(3)]
    items: list[MemoryItem | None] = []
    for order in permutations(found):
        state = ItemState.empty()
        for each in [*order, *order]:
            state.merge(each)
        items.append(state.to_item())
    assert all(item == items[0] for item in items)
    assert items[0] is not None and (items[0].support, items[0].against) == (3, 0)
