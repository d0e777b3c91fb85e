"""A failure and what got past it are told elsewhere while the first session is open, whichever door it came through.

No clock runs here: each door hands on a failed call before it returns and asks that it be sent at once, and no event
says that the session ended. So nothing waits for an end, for silence or for a timer.
"""

from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import replace
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from fleetlore import Fleet
from fleetlore.join.conversations import Conversations
from fleetlore.join.dialects import CHAT_COMPLETIONS
from fleetlore.relay.app import relay_app
from fleetlore.relay.gateway import About, tell
from fleetlore.wire import events as names
from streams.offline.memory_pipeline import MemoryPipeline
from tests.doubles.recorder import Recorder
from tests.fleetlore.relay.test_api import event

ERROR = "LookupError: index products does not exist, it was split into products-eu and products-us"
WRONG, RIGHT = {"index": "products"}, {"index": "products-eu"}

Door = Callable[[Fleet], Awaitable[list[Callable[[], Awaitable[None]]]]]


async def native(fleet: Fleet) -> list[Callable[[], Awaitable[None]]]:
    session = fleet.session("find a chair", "shop")
    copy_context().run(session.__enter__)  # the next test has no session

    async def fail() -> None:
        session.record("search", WRONG, error_text=ERROR)

    async def work() -> None:
        session.record("search", RIGHT, result="3 chairs")

    return [fail, work]


async def relay(fleet: Fleet) -> list[Callable[[], Awaitable[None]]]:
    client = TestClient(relay_app({"default": fleet}), base_url="http://127.0.0.1")
    about = {names.GOAL: "find a chair", names.TASK: "shop"}
    failed = {names.TOOL: "search", names.ARGUMENTS: WRONG, names.ERROR_MESSAGE: ERROR}
    worked = {names.TOOL: "search", names.ARGUMENTS: RIGHT, names.RESULT: "3 chairs"}

    async def send(*events: dict[str, Any]) -> None:
        answer = client.post("/v1/events", json=list(events), headers={"fleetlore-agent": "first"})
        assert answer.status_code == 202, answer.text

    return [
        lambda: send(event("session.started", **about), event("outcome", **failed)),
        lambda: send(event("outcome", **worked)),
    ]


async def gateway(fleet: Fleet) -> list[Callable[[], Awaitable[None]]]:
    """A client of a model that names no session."""
    conversations, messages = Conversations(), [{"role": "user", "content": "find a chair"}]
    tools = [{"type": "function", "function": {"name": "search"}}]

    async def turn(id: str, arguments: dict[str, str], said: str) -> None:
        if len(messages) == 1:
            tell(conversations, fleet, "first", CHAT_COMPLETIONS, body(), About())
        function = {"name": "search", "arguments": orjson.dumps(arguments).decode()}
        call = {"id": id, "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": id, "content": said})
        tell(conversations, fleet, "first", CHAT_COMPLETIONS, body(), About())

    def body() -> dict[str, Any]:
        return {"model": "m", "messages": [dict(each) for each in messages], "tools": tools}

    return [lambda: turn("c1", WRONG, ERROR), lambda: turn("c2", RIGHT, "3 chairs")]


async def hooks(fleet: Fleet) -> list[Callable[[], Awaitable[None]]]:
    client = TestClient(relay_app({"default": fleet}), base_url="http://127.0.0.1")

    async def call(id: str, arguments: dict[str, str], hook: str, **ended: Any) -> None:
        about = {"session_id": "c1", "tool_name": "search", "tool_use_id": id, "tool_input": arguments}
        for name, more in (("PreToolUse", {}), (hook, ended)):
            content = orjson.dumps({**about, "hook_event_name": name, **more})
            answer = client.post("/v1/hooks/claude-code", content=content, headers={"fleetlore-agent": "first"})
            assert answer.status_code == 200, answer.text

    return [
        lambda: call("t1", WRONG, "PostToolUseFailure", error=ERROR),
        lambda: call("t2", RIGHT, "PostToolUse", tool_response="3 chairs"),
    ]


async def mcp(fleet: Fleet) -> list[Callable[[], Awaitable[None]]]:
    server_module = pytest.importorskip("fleetlore.join.mcp.server")
    context = server_module.lore_server(fleet)
    server = copy_context().run(context.__enter__)
    server.kept = context  # the session is open for as long as its server

    async def report(**ended: Any) -> None:
        await server.call_tool("report", {"session": "m1", "tool": "search", **ended})

    return [lambda: report(arguments=WRONG, error=ERROR), lambda: report(arguments=RIGHT, result="3 chairs")]


@pytest.mark.parametrize("door", [native, relay, gateway, hooks, mcp])
async def test_a_failure_is_told_while_its_session_is_open(door: Door, fleet: Fleet, recorder: Recorder) -> None:
    fail, work = await door(fleet)
    await fail()
    (failed,) = [each for each in recorder.events if names.ERROR_MESSAGE in each.data]
    assert failed in recorder.hurried, "a new failure does not wait for a full batch"
    memory, sent = MemoryPipeline(), len(recorder.events)
    await memory.take(recorder.events)
    assert "This search call may fail: LookupError: index products" in await told(memory, "a")
    await work()
    await memory.take(recorder.events[sent:])
    assert "Use `index=products-eu` instead of `index=products`" in await told(memory, "b")
    assert "session.ended" not in recorder.kinds


async def told(memory: MemoryPipeline, id: str) -> str:
    """What another agent reads before the same call."""
    with memory.session("second", "another goal", "shop", id, []) as session:
        session.fleet.settings = replace(session.fleet.settings, quorum=1, holdout_share=0.0)
        return session.advise("search", WRONG).text
