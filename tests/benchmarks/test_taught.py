"""Recorded lessons of a language model pass through the teacher's own check, and verdicts are counted."""

from dataclasses import replace
from typing import Any

import pytest

from benchmarks import judged, taught
from benchmarks.taught import measure
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire import events as ev
from fleetlore.wire.events import Kind
from models.llm.client import Answers

GONE = "AttributeError: module 'pandas' has no attribute 'append'"
LESSON = {"failed": 1, "rejected": "append", "worked": 2, "instead": "concat"}


class AnyPrompt(Answers):
    """Gives the recorded answer to every prompt."""

    def get(self, key: str) -> str | None:
        return super().get("every prompt")


def logged(agent: str) -> LoggedSession:
    tool: dict[str, Any] = {ev.TOOL: "python"}
    calls = (
        tool | {ev.ARGUMENTS: "pandas.append(row)", ev.RESULT: "", ev.ERROR_MESSAGE: GONE},
        tool | {ev.ARGUMENTS: "pandas.concat(row)", ev.RESULT: "3 rows"},
    )
    events: list[tuple[Kind, dict[str, Any]]] = [("outcome", call) for call in calls]
    return LoggedSession(f"s-{agent}", agent, "t", f"append rows of {agent}", "success", events=events)


async def test_lessons_are_checked_merged_and_counted_in_later_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taught, "Answers", AnyPrompt)
    wrong = LESSON | {"instead": "merge"}
    monkeypatch.setattr("fleetlore.advice.advice.withheld", lambda *_: False)
    found = await measure(map(logged, "ijklmnop"), {"every prompt": {"lessons": [LESSON, wrong]}})
    assert (found["prompts"], found["citations hold"], found["changes"], found["published"]) == (3, 3, 1, 1)
    assert (found["backed by a quorum"], found["later sessions"], found["failing calls"]) == (1, 4, 4)
    assert found["taught lines alone"].startswith("4 shown, 4 right, 0 wrong")
    assert found["last episode, raw"].startswith("4 shown, 4 right, 0 wrong")


async def test_verdicts_are_counted_against_the_hidden_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taught, "Answers", AnyPrompt)
    answer = dict.fromkeys(("complete", "grounded", "right_target"), "yes") | {"verdict": "success"}
    sessions = [
        replace(logged(name), source="tau1", task=name, outcome=outcome, reward=1.0)
        for name, outcome in (("a", "success"), ("b", "failure"), ("c", "success"))
    ]
    found = await judged.measure(sessions, {"every prompt": answer})
    assert found["tau1, model"].startswith("2 of 3 right") and found["tau1, always success"].startswith("2 of 3 right")
    unsure = await judged.measure(sessions, {"every prompt": answer | {"verdict": "unsure"}})
    assert unsure["tau1, model"].endswith("3 abstained")
