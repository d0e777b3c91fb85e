"""Which of the fleet's remedies a session still needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleetlore.advice.advice import Situation, advise
from fleetlore.advice.situation import FailedCall
from fleetlore.fingerprint.fingerprint import call_id, failure_of, tool_id
from fleetlore.recall.index import LoreIndex
from fleetlore.recall.remedies import PreconditionTracker
from fleetlore.wire.lore import MemoryItem, Pattern
from tests.build import memory_item

BOOK = {"calendar": "stock", "length": 30}
LOCKED, REFUSED = "cause of the lock", "cause of the refusal"


def item(id: str, cause: str, remedy: dict[str, Any], **changes: Any) -> MemoryItem:
    fields: dict[str, Any] = {
        "content": f"Then: {id}",
        "tool": "book",
        "support": 8,
        "agents": 3,
        "sessions": ("s8", "s9"),
    }
    return memory_item(id, cause=cause, remedy=remedy, **(fields | changes))


SYNC = item("sync", LOCKED, {"tool": "sync", "arguments": {"range": "month"}, "open": []})
SHORTER = item(
    "shorter", REFUSED, {"tool": "book", "change": ["length", 60, 30]}, was=("length=60",), now=("length=30",)
)


def index(*items: MemoryItem, sessions: int = 10) -> LoreIndex:
    made = LoreIndex()
    made.put_pattern(
        Pattern(id=tool_id("book"), level="tool", tenant="default", tool="book", calls=20, sessions=sessions)
    )
    for each in items:
        made.put_item(each)
    return made


def told(lore: LoreIndex, preconditions: PreconditionTracker, arguments: dict[str, Any] = BOOK) -> list[str]:
    return [each.id for each in advise(lore, Situation("book", arguments, now=0.0, preconditions=preconditions)).items]


def test_before_the_first_call_what_most_sessions_needed_is_said() -> None:
    assert told(index(SYNC), PreconditionTracker()) == ["sync"]
    assert told(index(SYNC, sessions=100), PreconditionTracker()) == []


def test_sessions_that_were_told_and_heeded_it_do_not_silence_the_advice() -> None:
    # Eight met the error, and the other 92 did not because they were told.
    assert told(index(replace(SYNC, shown=92), sessions=100), PreconditionTracker()) == ["sync"]
    assert told(index(replace(SYNC, shown=92), sessions=1000), PreconditionTracker()) == []


def test_nothing_is_said_once_it_is_done_or_the_tool_has_worked() -> None:
    done, worked = PreconditionTracker(), PreconditionTracker()
    done.record_call("sync", {"range": "month"}, None)
    worked.record_call("book", BOOK, None)
    assert told(index(SYNC), done) == []
    assert told(index(SYNC), worked) == []


def test_another_way_of_calling_the_remedy_is_not_the_remedy() -> None:
    preconditions = PreconditionTracker()
    preconditions.record_call("sync", {"range": "day"}, None)
    assert told(index(SYNC), preconditions) == ["sync"]


def test_what_is_left_open_may_differ() -> None:
    remedy = {"tool": "pip", "arguments": {"package": "yaml", "user": True}, "open": ["package"]}
    preconditions = PreconditionTracker()
    preconditions.record_call("pip", {"package": "pandas", "user": True}, None)
    assert told(index(item("pip", LOCKED, remedy)), preconditions) == []


def test_when_the_error_comes_back_the_remedy_does_too() -> None:
    preconditions = PreconditionTracker()
    preconditions.record_call("sync", {"range": "month"}, None)
    preconditions.record_call("book", BOOK, None)
    preconditions.record_call("book", BOOK, LOCKED)
    assert told(index(SYNC), preconditions) == ["sync"]


def test_what_was_in_vain_in_this_session_is_not_said_again() -> None:
    preconditions = PreconditionTracker()
    preconditions.record_call("book", BOOK, LOCKED)
    preconditions.record_call("sync", {"range": "month"}, None)
    assert told(index(SYNC), preconditions) == ["sync"]
    preconditions.record_call("book", BOOK, LOCKED)
    assert told(index(SYNC), preconditions) == []


def test_another_value_is_said_of_the_value_that_fails_alone() -> None:
    preconditions = PreconditionTracker()
    preconditions.record_call("book", BOOK, None)
    assert told(index(SHORTER), preconditions, {"calendar": "orders", "length": 60}) == ["shorter"]
    assert told(index(SHORTER), preconditions) == []
    assert told(index(SHORTER), preconditions, {"calendar": "orders", "length": 90}) == []


def test_after_a_failure_the_session_is_told_without_naming_a_call() -> None:
    preconditions = PreconditionTracker()
    preconditions.record_call("book", BOOK, LOCKED)
    failure = failure_of("book", BOOK, "423", "locked")
    found = advise(
        index(SYNC), Situation(now=0.0, failed=FailedCall("", "locked", failure), preconditions=preconditions)
    )
    assert [each.id for each in found.items] == ["sync"]


@pytest.mark.parametrize(("others", "is_said"), [(5, True), (1, False)])
def test_a_failure_that_no_remedy_answers_is_told_of_where_it_is_not_rare(others: int, is_said: bool) -> None:
    met, other = (failure_of("book", BOOK, "423", text) for text in ("locked by another", "calendar is full"))
    lore = index(item("sync", LOCKED, {"tool": "sync", "arguments": {}, "open": []}, pattern=met.class_))
    for failure, failures in ((met, 20), (other, others)):
        named = {"error_class": failure.error_class, "template": failure.template}
        row = {"tenant": "default", "tool": "book", **named, "failures": failures}
        lore.put_pattern(Pattern(id=failure.class_, level="class", parent=failure.family, **row))
        call = call_id("book", BOOK)
        lore.put_pattern(Pattern(id=failure.exact, level="exact", parent=failure.class_, call=call, **row))
    health = {"calls": 30, "failures": 20 + others}
    lore.put_pattern(Pattern(id=call_id("book", BOOK), level="call", tenant="default", tool="book", **health))
    preconditions = PreconditionTracker()
    preconditions.record_call("sync", {}, None)
    found = advise(lore, Situation("book", BOOK, now=0.0, preconditions=preconditions))
    assert [tip.kind for tip in found.tips] == ([other.template] if is_said else [])
