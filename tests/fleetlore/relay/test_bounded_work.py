"""A large request of one caller does not keep the relay from the others."""

import asyncio
import time
from collections.abc import Callable
from contextvars import copy_context
from itertools import pairwise
from typing import Any

import httpx2
import orjson
import pytest

from fleetlore import Fleet
from fleetlore.join.conversations import Conversations, _tools_of
from fleetlore.join.dialects import CHAT_COMPLETIONS
from fleetlore.limits import refusals
from fleetlore.relay import api
from fleetlore.relay.app import Hooks
from fleetlore.relay.callers import Caller
from fleetlore.relay.gateway import About, tell
from fleetlore.wire import events as names
from tests.doubles.recorder import Recorder
from tests.fleetlore.relay.test_api import STARTED, WORKED, event
from tests.fleetlore.relay.test_gateway import chat

SHAPES = ["a", "([", "\n", " ", "\t", '{"a":[1,', "\"'", "Error: no x\n", "aA0_", "A.", "a=b&", "\u200b", "\\", "-- "]


def failed(number: int) -> dict[str, Any]:
    said = {names.TOOL: "search", names.ARGUMENTS: {"q": number}, names.ERROR_MESSAGE: f"no such thing: x{number}"}
    return event("outcome", **said)


async def test_a_large_batch_is_taken_in_slices(
    http: httpx2.AsyncClient, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "_EVENTS_AT_ONCE", 32)
    taken_before: list[int] = []
    batch = asyncio.create_task(http.post("/v1/events", json=[STARTED, *map(failed, range(1_000))]))
    while not batch.done():
        taken_before.append(len(recorder.events))
        await asyncio.sleep(0)
    assert batch.result().json()["accepted"] == 1_001
    steps = [after - before for before, after in pairwise(taken_before)]
    assert max(steps) <= 2 * 32, "between two turns of the event loop"
    assert [each.sequence for each in recorder.events] == list(range(1_001))


async def test_a_request_with_too_many_events_is_refused_whole(http: httpx2.AsyncClient, recorder: Recorder) -> None:
    answer = await http.post("/v1/events", json=[STARTED, *[WORKED] * 1_024])
    assert answer.status_code == 413 and "at most 1024 events" in answer.json()["detail"]
    assert not recorder.events and refusals()["too_many_events"]
    assert (await http.post("/v1/events", json=[STARTED, *[WORKED] * 1_023])).json()["accepted"] == 1_024


async def test_a_session_that_ends_between_slices_takes_no_number_of_another_event(
    http: httpx2.AsyncClient, recorder: Recorder
) -> None:
    await http.post("/v1/events", json=[STARTED])
    batch = asyncio.create_task(http.post("/v1/events", json=[failed(number) for number in range(500)]))
    while len(recorder.events) < 20:
        await asyncio.sleep(0)
    await http.post("/v1/sessions/s1/end", json={"outcome": "success"})
    assert (await batch).status_code == 409
    assert len({each.sequence for each in recorder.events}) == len(recorder.events)


def test_of_many_results_in_a_request_the_last_are_recorded(fleet: Fleet, recorder: Recorder) -> None:
    before = refusals().get("results_unread", 0)
    found = Conversations()

    def send(body: dict[str, Any]) -> None:
        assert tell(found, fleet, "a1", CHAT_COMPLETIONS, body, About()) is not None

    send(chat())
    many = [(f"c{number}", f"chair {number}") for number in range(300)]
    for _ in range(2):
        send(chat(*many))
        assert [each[names.RESULT] for each in recorder.outcomes] == [f"chair {number}" for number in range(172, 300)]
    assert refusals()["results_unread"] == before + 1


@pytest.mark.parametrize("count", [5_000, 50_000])
def test_a_conversation_that_is_too_long_passes_unread(fleet: Fleet, recorder: Recorder, count: int) -> None:
    many = [(f"c{number}", "x") for number in range(count)]
    for body in (chat(*many), {**chat(), "messages": [{"role": "user", "content": "x"}] * count}):
        assert tell(Conversations(), fleet, "a1", CHAT_COMPLETIONS, body, About()) is None
    assert not recorder.events and refusals()["conversation_too_long"]


def test_of_many_tools_the_first_are_read(fleet: Fleet) -> None:
    body = chat() | {"tools": [{"type": "function", "function": {"name": f"t{n}"}} for n in range(5_000)]}
    told = tell(Conversations(), fleet, "a1", CHAT_COMPLETIONS, body, About())
    assert told is not None and _tools_of(body) == [f"t{n}" for n in range(1_024)]


def gateway(fleet: Fleet, text: str) -> Callable[[], object]:
    found = Conversations()
    tell(found, fleet, "a1", CHAT_COMPLETIONS, chat(), About())
    body = chat(("c1", text))
    return lambda: tell(found, fleet, "a1", CHAT_COMPLETIONS, body, About())


def hook(fleet: Fleet, text: str) -> Callable[[], object]:
    given = {"hook_event_name": "PostToolUse", "session_id": "s", "tool_use_id": "1", "tool_name": "Bash"}
    body = orjson.dumps({**given, "tool_input": {"command": text}, "tool_response": text})
    return lambda: Hooks().answer(fleet, Caller("default", "a1"), "codex", body)


@pytest.mark.parametrize("door", [gateway, hook])
def test_cpu_grows_no_faster_than_the_text(fleet: Fleet, door: Callable[[Fleet, str], Callable[[], object]]) -> None:
    def cpu(shape: str, size: int) -> float:
        text = shape * (size // len(shape))
        best = 9.0
        for _ in range(3):
            here = copy_context()  # a door leaves its session open
            act = here.run(door, fleet, text)
            began = time.thread_time()
            here.run(act)
            best = min(best, time.thread_time() - began)
        return best

    for shape in SHAPES:
        # Eight times the text takes eight times as long, and 64 times where the cost grows with the square.
        assert any(cpu(shape, 400_000) <= 20 * cpu(shape, 50_000) + 0.02 for _ in range(3)), repr(shape)


async def test_calls_that_never_end_are_bounded(fleet: Fleet) -> None:
    from fleetlore.relay.callers import _RemoteSession
    from fleetlore.wire.events import Event

    session = _RemoteSession(fleet, "a1", "s1")
    for number in range(3_000):
        data = {names.TOOL: f"t{number}", names.ARGUMENTS: {}}
        assert session.take(Event("action", "default", "a1", "s1", number, 1.0, data))
        assert not session.take(Event("action", "default", "a1", "s1", number, 1.0, data)), "it was taken before"
    assert len(session._begun) == 1024 and not session._seen
