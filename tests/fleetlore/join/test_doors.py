"""One failing tool through each door: one pattern with the same id, whatever stands between the tool and the record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp import Client
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from fleetlore import Fleet, Session, tool
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.join.mcp_calls import McpCalls
from fleetlore.join.openai_agents import function_tool
from fleetlore.wire import events
from tests.doubles.recorder import Recorder
from tests.fleetlore.join import test_claude, test_langchain, test_openai_agents, test_pydantic_ai
from tests.fleetlore.join.conftest import read_file

PATH = "/etc/shadow"
TEXT = f"PermissionError: [Errno 13] Permission denied: '{PATH}'"
Door = Callable[[Session], Awaitable[Any]]


async def decorator(session: Session) -> None:
    with pytest.raises(PermissionError):
        tool(read_file)(PATH)


async def by_hand(session: Session) -> None:
    session.record("read_file", {"path": PATH}, error_text=TEXT)


async def traceback(session: Session) -> None:
    lines = f'Traceback (most recent call last):\n  File "a.py", line 3, in read_file\n{TEXT}'
    session.record("read_file", {"path": PATH}, error_text=lines)


async def langchain(session: Session) -> None:
    await test_langchain.agent(test_langchain.calls(PATH)).ainvoke(test_langchain.GO)


async def langchain_that_raises(session: Session) -> None:
    with pytest.raises(PermissionError):
        await test_langchain.agent(test_langchain.calls(PATH), errors=False).ainvoke(test_langchain.GO)


async def openai_agents(session: Session) -> None:
    await test_openai_agents.run(test_openai_agents.Script(test_openai_agents.DENY), function_tool(read_file))


async def pydantic_ai(session: Session) -> None:
    with pytest.raises(PermissionError):
        await test_pydantic_ai.agent(PATH).run("go")


async def claude(session: Session) -> None:
    process = test_claude.Process(session)
    call: dict[str, Any] = {"tool_name": "read_file", "tool_input": {"path": PATH}, "tool_use_id": "1"}
    await process.send({"hook_event_name": "PreToolUse", **call})
    await process.send({"hook_event_name": "PostToolUseFailure", **call, "error": TEXT})


async def mcp(session: Session) -> None:
    """The messages of a real server that answers with an error."""
    server = MCPServer("files")

    @server.tool(name="read_file")
    def read(path: str) -> str:
        raise ToolError(TEXT)

    async with Client(server) as client:
        result = await client.call_tool("read_file", {"path": PATH})
    calls = McpCalls(session)
    calls.from_client(
        b'{"id":1,"method":"tools/call","params":{"name":"read_file","arguments":{"path":"/etc/shadow"}}}'
    )
    calls.from_server(b'{"id":1,"result":%b}' % result.model_dump_json(by_alias=True).encode())


DOORS: list[Door] = [
    decorator, by_hand, traceback, langchain, langchain_that_raises, openai_agents, pydantic_ai, claude, mcp
]  # fmt: skip


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
async def test_one_failure_is_one_pattern(fleet: Fleet, recorder: Recorder, door: Door) -> None:
    async with fleet.session("g") as session:
        await door(session)
    [outcome] = recorder.outcomes
    error = recorder.error(outcome)
    assert error is not None, "a failure was recorded as a success"
    arguments = {"path": PATH}
    expected = failure_of("read_file", arguments, "PermissionError", f"[Errno 13] Permission denied: '{PATH}'")
    assert failure_of(outcome[events.TOOL], outcome[events.ARGUMENTS], *error) == expected
