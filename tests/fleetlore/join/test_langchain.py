from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, SystemMessage, ToolMessage
from langchain_core.tools import StructuredTool, ToolException
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command, interrupt

from fleetlore import Fleet, tool
from fleetlore.join.langchain import FleetMiddleware
from fleetlore.wire import events
from tests.build import memory_item
from tests.doubles.recorder import Recorder
from tests.fleetlore.join.conftest import DENIED, GOAL, LOOK_UP, know_look_up, read_file
from tests.fleetlore.join.langchain_errors import ToolErrorMiddleware

SENT: list[Any] = []


class Model(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: Any, *args: Any, **options: Any) -> Any:
        SENT.append(messages)
        return super()._generate(messages, *args, **options)


def calls(*paths: str, name: str = "read_file") -> AIMessage:
    made = [{"name": name, "args": {"path": path}, "id": f"call-{number}"} for number, path in enumerate(paths)]
    return AIMessage("", tool_calls=made)


def agent(*messages: AIMessage, tools: Any = (read_file,), errors: bool = True, **options: Any) -> Any:
    SENT.clear()
    middleware: list[Any] = [ToolErrorMiddleware(lambda error, request: "it failed")] if errors else []
    model = Model(messages=iter([*messages, AIMessage("done")]))
    return create_agent(model, tools=list(tools), middleware=[*middleware, FleetMiddleware()], **options)


GO: Any = {"messages": [("user", "go")]}


@pytest.mark.parametrize("decorated", [False, True])
async def test_sync_and_async_calls_are_recorded_once_as_what_they_were(
    fleet: Fleet, recorder: Recorder, decorated: bool
) -> None:
    tools = [tool(read_file) if decorated else read_file]
    async with fleet.session("g"):
        await agent(calls("/srv/a", "/etc/shadow"), tools=tools).ainvoke(GO)
        agent(calls("/srv/a", "/etc/shadow"), tools=tools).invoke(GO)
    outcomes = {(each[events.ARGUMENTS]["path"], recorder.error(each)) for each in recorder.outcomes}
    assert len(recorder.outcomes) == 4
    assert outcomes == {("/srv/a", None), ("/etc/shadow", DENIED)}


async def test_a_failure_in_any_of_its_forms_is_one(fleet: Fleet, recorder: Recorder) -> None:
    def refuse(path: str) -> str:
        raise ToolException(f"no such table: {path}")

    handled = StructuredTool.from_function(refuse, name="read_file", description="d", handle_tool_error=True)
    async with fleet.session("g"):
        await agent(calls("cars"), tools=[handled]).ainvoke(GO)
        agent(AIMessage("", tool_calls=[{"name": "read_file", "args": {"file": 1}, "id": "1"}])).invoke(GO)
        message = ToolMessage("no such table", tool_call_id="call-0", status="error")
        updates = Command(update={"messages": [message]})
        answering = StructuredTool.from_function(lambda path: updates, name="read_file", description="d")
        agent(calls("cars"), tools=[answering]).invoke(GO)
        several = StructuredTool.from_function(lambda path: [updates], name="read_file", description="d")
        agent(calls("cars"), tools=[several]).invoke(GO)
        as_dict = {"role": "tool", "content": "no such table", "tool_call_id": "call-0", "status": "error"}
        plain = [Command(update={"messages": each}) for each in (None, 7, [as_dict])]
        FleetMiddleware().wrap_tool_call(ToolCallRequest(calls("cars").tool_calls[0], None, {}, None), lambda _: plain)
    said, invalid, *updated = (recorder.error(each) for each in recorder.outcomes)
    assert said == ("_OTHER", "no such table: cars") and updated == [("_OTHER", "no such table")] * 3
    assert invalid is not None and invalid[0] == "_OTHER" and "path" in invalid[1]


async def test_a_run_that_is_resumed_is_a_further_part_of_its_thread(fleet: Fleet, recorder: Recorder) -> None:
    def ask(path: str) -> str:
        """Ask."""
        return str(interrupt("may I?"))

    graph = agent(calls("x", name="ask"), tools=[ask], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t1"}}
    async with fleet.session("g", session_id="t1", resume=True):
        await graph.ainvoke(GO, config)
    assert recorder.kinds == ["session.started", "session.ended"]
    async with fleet.session("g", session_id="t1", resume=True):
        await graph.ainvoke(Command(resume="yes"), config)
    assert [each[events.RESULT] for each in recorder.outcomes] == ["yes"]
    assert len({event.session for event in recorder.events}) == 2


async def test_the_model_is_told_before_each_choice(fleet: Fleet) -> None:
    block = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    async with fleet.session(GOAL, task="look") as session:
        await agent(calls("/srv/a"), system_prompt=SystemMessage([block])).ainvoke(GO)
    assert len(SENT) == 2 and len({each[0].text for each in SENT}) == 1
    first, ours = SENT[0][0].content
    assert first == block and ours["text"].startswith(f"{session.introduction}\n\n<fleet-memory ")
    assert "Look into /srv first" in ours["text"]
    agent(calls("/srv/a")).invoke(GO)  # without a session
    assert [each[0].type for each in SENT] == ["human", "human"]


async def test_tools_of_an_mcp_server_are_open_and_shown_by_their_own_names(fleet: Fleet, recorder: Recorder) -> None:
    async def read_file(path: str) -> str:
        """Read a file."""
        raise ToolException("it is gone")

    async def look(path: str) -> str:
        """Show what there is."""
        return path

    for function in (read_file, look):
        function.__module__ = "langchain_mcp_adapters.tools"
    known = {"support": 3, "agents": 3, "was": ("path=/gone",), "now": ("path=/b",)}
    fleet.replica.index.put_item(memory_item("r1", tool="mcp__unknown__read_file", **known))
    know_look_up(fleet, "mcp__unknown__read_file", "mcp__unknown__look")
    tools = [StructuredTool.from_function(coroutine=each) for each in (read_file, look)]
    async with fleet.session("g") as session:
        await agent(calls("/srv/gone"), tools=tools).ainvoke(GO)
        session.message("assistant", f"I was advised: {LOOK_UP}")
    assert [each[events.TOOL] for each in recorder.outcomes] == ["mcp__unknown__read_file"]
    answer = next(each.text for each in SENT[1] if each.type == "tool")
    assert answer.startswith("it failed\n\n<fleet-memory ") and LOOK_UP in answer and "mcp__" not in answer
    assert "instead of" in SENT[0][0].text and "mcp__" not in "".join(each[0].text for each in SENT)
    [message] = [each.data[events.CONTENT] for each in recorder.events if each.kind == "message"]
    assert LOOK_UP not in message, "an echo of it is not evidence"
