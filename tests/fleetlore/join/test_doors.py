"""Calls through each door, one of which fails: one pattern with the same id, and each call recorded as what it was.

`test_otel.py` and `tests/fleetlore/transcripts/test_read.py` say the same of spans and of logs.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx2
import orjson
import pytest
from agents import ToolOutputImage, ToolOutputText
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel
from pydantic_ai import ToolReturn

from fleetlore import Fleet, tool
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.join.mcp.http_proxy import forwarding_app
from fleetlore.join.mcp.proxy import McpCalls
from fleetlore.join.openai_agents import function_tool
from fleetlore.relay.app import Hooks
from fleetlore.relay.callers import Caller
from fleetlore.wire import events
from tests.doubles.recorder import Recorder
from tests.fleetlore.join import test_claude, test_langchain, test_openai_agents, test_pydantic_ai
from tests.fleetlore.join.conftest import DENIED, REFUSED, SAID_FAILED, know_denied, read_file
from tests.fleetlore.join.test_mcp_proxy import serving

PATHS = WORKS, FAILS = "/srv/a", "/etc/shadow"
TEXT = f"PermissionError: [Errno 13] Permission denied: '{FAILS}'"
Door = Callable[[Fleet], Awaitable[None]]


async def decorator(fleet: Fleet) -> None:
    async with fleet.session("g"):
        calls = [asyncio.to_thread(tool(read_file), path) for path in PATHS]
        await asyncio.gather(*calls, return_exceptions=True)


async def decorated_coroutine(fleet: Fleet) -> None:
    @tool(name="read_file")
    async def read_later(path: str) -> str:
        await asyncio.sleep(0.0 if path == FAILS else 0.01)
        return read_file(path)

    async with fleet.session("g"):
        await asyncio.gather(*map(read_later, PATHS), return_exceptions=True)


async def by_hand(fleet: Fleet) -> None:
    async with fleet.session("g") as session:
        begun = [session.begin("read_file", {"path": path}) for path in PATHS]
        for path, action in reversed(list(zip(PATHS, begun, strict=True))):
            if path == FAILS:
                action.end(error_text=TEXT)
            else:
                action.end(read_file(path))


async def traceback(fleet: Fleet) -> None:
    async with fleet.session("g") as session:
        lines = f'Traceback (most recent call last):\n  File "a.py", line 3, in read_file\n{TEXT}'
        for path in PATHS:
            said = {"error_text": lines} if path == FAILS else {"result": read_file(path)}
            session.record("read_file", {"path": path}, **said)


def with_langchain(tool: Any, *paths: str) -> Awaitable[Any]:
    calls = test_langchain.calls(*paths, name=tool.__name__)
    run: Awaitable[Any] = test_langchain.agent(calls, tools=[tool]).ainvoke(test_langchain.GO)
    return run


def with_openai_agents(tool: Any, *paths: str) -> Awaitable[Any]:
    calls = [(tool.__name__, orjson.dumps({"path": path}).decode()) for path in paths]
    return test_openai_agents.run(test_openai_agents.Script(*calls), function_tool(tool))


def with_pydantic_ai(tool: Any, *paths: str) -> Awaitable[Any]:
    return test_pydantic_ai.agent(*paths, name=tool.__name__, tools=[tool]).run("go")


class Answer(BaseModel):
    success: bool = False
    message: str = "no such table"


@dataclass
class Row:
    error: str


async def by_decorator(function: Any, *paths: str) -> None:
    recorded = tool(function)
    for path in paths:
        recorded(path)


# An agent that calls a tool with these paths, side by side.
FRAMEWORKS: list[Callable[..., Awaitable[Any]]] = [with_langchain, with_openai_agents, with_pydantic_ai]


async def langchain(fleet: Fleet) -> None:
    async with fleet.session("g"):
        await with_langchain(read_file, *PATHS)


async def langchain_that_raises(fleet: Fleet) -> None:
    with pytest.raises(PermissionError):
        async with fleet.session("g"):
            await test_langchain.agent(test_langchain.calls(*PATHS), errors=False).ainvoke(test_langchain.GO)


async def openai_agents(fleet: Fleet) -> None:
    async with fleet.session("g"):
        await with_openai_agents(read_file, *PATHS)


async def pydantic_ai(fleet: Fleet) -> None:
    with pytest.raises(PermissionError):
        async with fleet.session("g"):
            await with_pydantic_ai(read_file, *PATHS)


async def claude(fleet: Fleet) -> None:
    async with fleet.session("g") as session:
        process = test_claude.Process(session)
        calls = [{"tool_name": "read_file", "tool_input": {"path": path}, "tool_use_id": path} for path in PATHS]
        for call in calls:
            await process.send({"hook_event_name": "PreToolUse", **call})
        for call in reversed(calls):
            if call["tool_use_id"] == FAILS:
                await process.send({"hook_event_name": "PostToolUseFailure", **call, "error": TEXT})
            else:
                done = {"tool_response": read_file(call["tool_use_id"])}
                await process.send({"hook_event_name": "PostToolUse", **call, **done})


FRAME = "Chunk ID: 3f9c\nWall time: 0.05 seconds\nProcess exited with code {}\nOriginal token count: 9\nOutput:\n{}"


def hooks(client: str) -> Door:
    async def door(fleet: Fleet) -> None:
        hooks = Hooks()
        for path in PATHS:
            call = {"session_id": "s", "tool_name": "read_file", "tool_input": {"path": path}, "tool_use_id": path}
            ended: dict[str, Any] = {"hook_event_name": "PostToolUse"}
            if client == "codex":
                ended["tool_response"] = FRAME.format(1, TEXT) if path == FAILS else FRAME.format(0, read_file(path))
            elif path == FAILS:
                ended = {"hook_event_name": "PostToolUseFailure", "error": f"Exit code 1\n{TEXT}"}
            else:
                ended["tool_response"] = read_file(path)
            for event in ({"hook_event_name": "PreToolUse"}, ended):
                hooks.answer(fleet, Caller("default", "a1"), client, orjson.dumps(call | event))

    return door


def files_server() -> MCPServer[Any]:
    server = MCPServer("files")

    @server.tool(name="read_file")
    def read(path: str) -> str:
        if path == FAILS:
            raise ToolError(TEXT)
        return read_file(path)

    return server


async def mcp_over_http(fleet: Fleet) -> None:
    """The proxy between the official client and a real server."""
    async with (
        serving(files_server().streamable_http_app()) as address,
        serving(forwarding_app(fleet, address)) as proxy,
        httpx2.AsyncClient(timeout=120) as http,
        Client(streamable_http_client(proxy, http_client=http)) as client,
    ):
        await asyncio.gather(*(client.call_tool("read_file", {"path": path}) for path in PATHS))


async def mcp_over_stdio(fleet: Fleet) -> None:
    """The messages of a real server, answered in the other order."""
    async with Client(files_server()) as client, fleet.session("g") as session:
        calls = McpCalls(session)
        for id, path in enumerate(PATHS):
            params = {"name": "read_file", "arguments": {"path": path}}
            calls.from_client(orjson.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
        for id, path in reversed(list(enumerate(PATHS))):
            result = await client.call_tool("read_file", {"path": path})
            calls.from_server(
                b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (id, result.model_dump_json(by_alias=True).encode())
            )


DOORS: dict[str, Door] = {
    **{
        each.__name__: each
        for each in (
            decorator, decorated_coroutine, by_hand, traceback, langchain, langchain_that_raises, openai_agents,
            pydantic_ai, claude, mcp_over_http, mcp_over_stdio,
        )
    },
    **{f"hooks of {client}": hooks(client) for client in ("claude-code", "codex")},
}  # fmt: skip
# An error that ends the run cancels the calls beside it: of those nothing is known.
ENDS_THE_RUN = {"langchain_that_raises", "pydantic_ai"}


@pytest.mark.parametrize("door", DOORS)
async def test_one_failure_is_one_pattern_and_the_call_beside_it_worked(
    fleet: Fleet, recorder: Recorder, door: str
) -> None:
    await DOORS[door](fleet)
    outcomes = {each[events.ARGUMENTS]["path"]: each for each in recorder.outcomes}
    assert len(outcomes) == len(recorder.outcomes), "a call was recorded twice"
    failed = outcomes[FAILS]
    error = recorder.error(failed)
    assert error is not None and events.RESULT not in failed, "a failure was recorded as a success"
    tool = failed[events.TOOL]
    assert tool.rpartition("__")[2] == "read_file"  # a proxy of an MCP server names it, too
    expected = failure_of(tool, {"path": FAILS}, "PermissionError", f"[Errno 13] Permission denied: '{FAILS}'")
    assert failure_of(tool, failed[events.ARGUMENTS], *error) == expected
    if door in ENDS_THE_RUN:
        assert recorder.error(failed) == DENIED and recorder.events[-1].data[events.OUTCOME] == "failure"
    worked = outcomes.get(WORKS)
    if worked is None:
        assert door in ENDS_THE_RUN
    else:
        assert recorder.error(worked) is None and worked[events.RESULT], "a success was recorded as a failure"


@pytest.mark.parametrize("run", FRAMEWORKS)
async def test_advice_is_credited_to_the_call_it_was_asked_for(fleet: Fleet, recorder: Recorder, run: Any) -> None:
    id = know_denied(fleet)
    fleet.settings = fleet.settings.with_(hold="off")
    async with fleet.session("g") as session:
        assert session.advise("read_file", {"path": FAILS}, call_id="call-1").ids == (id,)
        session.advise("read_file", {"path": WORKS}, call_id="call-0")
        with contextlib.suppress(PermissionError):  # it ends the run
            await run(read_file, *PATHS)
    credited = {each[events.ARGUMENTS]["path"]: each.get(events.ADVICE) for each in recorder.outcomes}
    assert credited[FAILS] == [id] and not credited.get(WORKS)


@pytest.mark.parametrize("run", [*FRAMEWORKS, by_decorator])
async def test_a_tool_that_says_it_failed_did_not_succeed(fleet: Fleet, recorder: Recorder, run: Any) -> None:
    said: list[Any] = [*SAID_FAILED, REFUSED]

    def ask(path: str) -> Any:
        """Ask."""
        return said.pop()

    async with fleet.session("g"):
        while said:
            await run(ask, "cars")
    assert len(recorder.outcomes) == len(SAID_FAILED)
    assert all("no such table" in str(recorder.error(each)) for each in recorder.outcomes)


@pytest.mark.parametrize("run", [with_openai_agents, with_pydantic_ai, by_decorator])
async def test_a_model_that_says_it_failed_did_not_succeed(fleet: Fleet, recorder: Recorder, run: Any) -> None:
    text = ToolOutputText(text="Error: no such table")
    said: list[Any] = [Answer(), Row("no such table"), text, [text]]
    said += [ToolReturn({"error": "no such table"})] if run is with_pydantic_ai else []

    def ask(path: str) -> Any:
        """Ask."""
        return said[-1]

    async with fleet.session("g"):
        while said:
            await run(ask, "cars")
            said.pop()
        said.append(ToolOutputImage(image_url="https://example.com/error.png"))
        await run(ask, "cars")
    *failed, worked = recorder.outcomes
    assert len(failed) >= 4 and all("no such table" in str(recorder.error(each)) for each in failed)
    assert recorder.error(worked) is None


@pytest.mark.parametrize("run", FRAMEWORKS)
async def test_a_cancelled_run_says_nothing_of_its_tool(fleet: Fleet, recorder: Recorder, run: Any) -> None:
    called = asyncio.Event()

    async def wait(path: str) -> str:
        """Wait."""
        called.set()
        await asyncio.sleep(60)
        return path

    async with fleet.session("g"):
        running = asyncio.ensure_future(run(wait, "x"))
        await called.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert recorder.kinds == ["session.started", "session.ended"]
