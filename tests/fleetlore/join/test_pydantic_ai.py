import contextlib
from asyncio import Runner, set_event_loop
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry, exceptions
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.messages import ModelMessage, ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, Tool, ToolDefinition
from pydantic_ai.toolsets import FunctionToolset

from fleetlore import Fleet, tool
from fleetlore.join.pydantic_ai import FleetLore
from fleetlore.wire import events
from tests.build import memory_item
from tests.doubles.recorder import Recorder
from tests.fleetlore.join.conftest import GOAL, LOOK_UP, know_look_up, read_file

HEARD: list[str | None] = []
# 1.x has neither an error by which a tool fails, nor the server of a tool.
REFUSALS = [getattr(exceptions, name) for name in ("ModelRetry", "ToolFailed") if hasattr(exceptions, name)]
SERVER = "my_files" if hasattr(ToolDefinition, "toolset_id") else "unknown"


def agent(*paths: str, tools: Any = (read_file,), name: str = "read_file", **options: Any) -> Agent[None, Any]:
    HEARD.clear()

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        HEARD.append(info.instructions)
        if len(HEARD) > 1:
            return ModelResponse([TextPart("done")])
        calls = [ToolCallPart(name, {"path": path}, f"call-{number}") for number, path in enumerate(paths)]
        return ModelResponse(calls)

    return Agent(FunctionModel(answer), tools=list(tools), capabilities=[FleetLore()], **options)


def test_sync_runs_are_recorded(fleet: Fleet, recorder: Recorder) -> None:
    with Runner() as runner, fleet.session("g"):
        set_event_loop(runner.get_loop())  # else the package makes one that nobody closes
        agent("/srv/a").run_sync("go")
    set_event_loop(None)
    assert [each[events.RESULT] for each in recorder.outcomes] == ["text of /srv/a"]


@pytest.mark.parametrize("error", [each("no such table: cars") for each in REFUSALS])
@pytest.mark.parametrize("decorated", [False, True])
async def test_a_refusal_is_a_failure(fleet: Fleet, recorder: Recorder, error: Exception, decorated: bool) -> None:
    def refuse(path: str) -> str:
        raise error

    async with fleet.session("g"):
        await agent("cars", name="refuse", tools=[tool(refuse) if decorated else refuse]).run("go")
    [outcome] = recorder.outcomes
    assert recorder.error(outcome) == (type(error).__name__ if decorated else "_OTHER", "no such table: cars")


INVALID: list[Any] = [{}, {"path": 3}, '{"path": ', '{"path": "/srv/a", "depth": "x"}', "null"]


@pytest.mark.parametrize(
    ("tool_name", "arguments", "error"),
    [
        ("raed", {"path": "/srv/a"}, "Unknown tool name: 'raed'"),
        *([("hidden", {"path": "/srv/a"}, "is not available yet")] if len(REFUSALS) > 1 else []),  # 1.x makes the call
        *(("read", each, "validation error") for each in INVALID),
    ],
)
async def test_a_call_that_is_never_executed_has_failed(
    fleet: Fleet, recorder: Recorder, tool_name: str, arguments: Any, error: str
) -> None:
    def read(path: str, depth: int = 1) -> str:
        return path

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        part = TextPart("done") if len(messages) > 1 else ToolCallPart(tool_name, arguments, "call-1")
        return ModelResponse([part])

    async with fleet.session("g"):
        tools = [read, Tool(read, name="hidden", defer_loading=True)]
        await Agent(FunctionModel(answer), tools=tools, capabilities=[FleetLore()]).run("go")
    [outcome] = recorder.outcomes
    assert outcome[events.TOOL] == tool_name and error in outcome[events.ERROR_MESSAGE]


async def test_the_last_refusal_of_a_run_is_recorded_as_the_earlier_ones(fleet: Fleet, recorder: Recorder) -> None:
    def refuse(path: str) -> str:
        raise ModelRetry(f"no such table: {path}")

    def check(ctx: RunContext[None], path: str) -> None:
        raise REFUSALS[-1](f"no such table: {path}")

    for validator in (None, check):
        asking = Tool(refuse, max_retries=1, args_validator=validator)

        def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            part = ToolCallPart("refuse", {"path": "cars"}, f"call-{len(messages)}")
            return ModelResponse([part if len(messages) < 5 else TextPart("done")])

        with contextlib.suppress(exceptions.UnexpectedModelBehavior):
            async with fleet.session("g"):
                await Agent(FunctionModel(answer), tools=[asking], capabilities=[FleetLore()]).run("go")
    assert len(recorder.outcomes) == 4
    assert {recorder.error(each) for each in recorder.outcomes} == {("_OTHER", "no such table: cars")}


@pytest.mark.parametrize("asks_again", [False, True])
async def test_a_tool_that_is_gone_one_step_later_is_recorded_once(
    fleet: Fleet, recorder: Recorder, asks_again: bool
) -> None:
    calls: list[str] = []

    def login() -> str:
        calls.append("login")
        if asks_again:
            raise ModelRetry("wrong password")
        return "logged in"

    async def until_used(ctx: RunContext[None], tool_def: ToolDefinition) -> ToolDefinition | None:
        return None if calls else tool_def

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart("done") if calls else ToolCallPart("login", {}, "call-1")])

    async with fleet.session("g"):
        tools = [Tool(login, prepare=until_used)]
        await Agent(FunctionModel(answer), tools=tools, capabilities=[FleetLore()]).run("go")
    [outcome] = recorder.outcomes
    assert recorder.error(outcome) == (("_OTHER", "wrong password") if asks_again else None)


async def test_an_approved_run_is_a_further_part_of_its_thread(fleet: Fleet, recorder: Recorder) -> None:
    def ask(ctx: RunContext[None], path: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return f"text of {path}"

    asking = agent("x", name="ask", tools=[ask], output_type=[str, DeferredToolRequests])
    async with fleet.session("g", session_id="t1", resume=True):
        waiting = await asking.run("go")
    assert recorder.kinds == ["session.started", "session.ended"], "a call that waits for approval has not ended"
    approved = DeferredToolResults(approvals={"call-0": True})
    async with fleet.session("g", session_id="t1", resume=True):
        await asking.run(message_history=waiting.all_messages(), deferred_tool_results=approved)
    assert [each[events.RESULT] for each in recorder.outcomes] == ["text of x"]
    assert len({event.session for event in recorder.events}) == 2


async def test_the_model_is_told_before_each_request(fleet: Fleet) -> None:
    async with fleet.session(GOAL, task="look"):
        await agent("/srv/a", instructions="Be brief.").run("go")
    assert len(HEARD) == 2 and len(set(HEARD)) == 1
    assert all(each is not None and "Be brief." in each and "Look into /srv first" in each for each in HEARD)
    await agent("/srv/a").run("go")  # without a session
    assert HEARD == [None, None]


@pytest.mark.parametrize(
    ("server", "recorded"), [("my files", f"mcp__{SERVER}__read_file"), (None, "mcp__unknown__read_file")]
)
async def test_a_tool_of_an_mcp_server_is_known_by_its_server_and_the_model_reads_its_own_name(
    fleet: Fleet, recorder: Recorder, server: str | None, recorded: str
) -> None:
    fleet.replica.index.put_item(
        memory_item("r1", tool=recorded, support=3, agents=3, was=("path=/gone",), now=("path=/b",))
    )
    described = FunctionToolset([read_file], id=server).with_metadata(meta=None, annotations=None, task=False)
    async with fleet.session("g"):
        await agent("/srv/a", tools=(), toolsets=[described]).run("go")
    assert [each[events.TOOL] for each in recorder.outcomes] == [recorded]
    assert "instead of" in (HEARD[0] or "") and "mcp__" not in "".join(map(str, HEARD))


async def test_a_hint_names_another_tool_of_an_mcp_server_as_the_model_knows_it(fleet: Fleet) -> None:
    def read_file(path: str) -> str:
        raise ModelRetry("it is gone")

    def look(path: str) -> str:
        return path

    know_look_up(fleet, f"mcp__{SERVER}__read_file", f"mcp__{SERVER}__look")
    toolset = FunctionToolset([read_file, look], id="my files")
    described = toolset.with_metadata(meta=None, annotations=None, task=False)
    async with fleet.session("g"):
        run = await agent("/srv/gone", tools=(), toolsets=[described]).run("go")
    parts = [part for each in run.all_messages() for part in each.parts]
    [answer] = [part for part in parts if isinstance(part, RetryPromptPart | ToolReturnPart)]
    assert LOOK_UP in str(answer.content) and "mcp__" not in str(answer.content)
