import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from agents import (
    Agent,
    ModelBehaviorError,
    ModelResponse,
    RunConfig,
    Runner,
    ToolTimeoutError,
    Usage,
    set_tracing_disabled,
)
from agents.models.interface import Model
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from fleetlore import Fleet
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.join.openai_agents import function_tool, tell
from fleetlore.wire import events
from tests.build import memory_item
from tests.doubles.recorder import Recorder
from tests.fleetlore.join.conftest import DENIED, GOAL, read_file

set_tracing_disabled(True)


class Script(Model):
    """Makes the calls that it is given, all at once, then says that it is done. `first`: number of the first call."""

    def __init__(self, *calls: tuple[str, str], first: int = 0) -> None:
        made = [
            ResponseFunctionToolCall(type="function_call", name=name, arguments=arguments, call_id=f"call-{number}")
            for number, (name, arguments) in enumerate(calls, first)
        ]
        text = ResponseOutputText(type="output_text", text="done", annotations=[])
        done = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        self._turns: Iterator[Any] = iter([made, [done]] if made else [[done]])
        self.heard: list[str | None] = []

    async def get_response(self, system_instructions: str | None, *args: Any, **options: Any) -> ModelResponse:
        self.heard.append(system_instructions)
        return ModelResponse(output=next(self._turns), usage=Usage(), response_id=None)

    async def stream_response(self, *args: Any, **options: Any) -> Any:
        response = Response(
            id="r", created_at=0, model="m", object="response", output=next(self._turns), tools=[],
            tool_choice="auto", parallel_tool_calls=True,
        )  # fmt: skip
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)


async def run(script: Script, *tools: Any, **options: Any) -> Any:
    agent = Agent("a", model=script, tools=list(tools), **options)
    return await Runner.run(agent, "go", run_config=RunConfig(call_model_input_filter=tell))


READ = ("read_file", '{"path": "/srv/a"}')
DENY = ("read_file", '{"path": "/etc/shadow"}')


async def test_the_options_of_the_sdk_work_as_before(fleet: Fleet, recorder: Recorder) -> None:
    explained = function_tool(failure_error_function=lambda context, error: "sorry", name_override="cat")(read_file)
    assert explained.name == "cat"
    failure = failure_of("cat", DENY[1], *DENIED)
    known = memory_item("r1", tool="cat", pattern=failure.class_, support=3, agents=3, now=("user=root",))
    fleet.replica.index.put_item(known)
    async with fleet.session("g"):
        result = await run(Script(("cat", DENY[1])), explained)
    [output] = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
    assert output.startswith("sorry\n\n<fleet-memory ")  # what the option makes of it, and a way out
    assert recorder.error(recorder.outcomes[0]) == DENIED
    raising = function_tool(read_file, failure_error_function=None)
    with pytest.raises(Exception, match="Permission denied"):
        async with fleet.session("g"):
            await run(Script(DENY), raising)
    assert recorder.error(recorder.outcomes[1]) == DENIED
    assert recorder.events[-1].data[events.OUTCOME] == "failure"


async def test_a_call_that_took_too_long_failed(fleet: Fleet, recorder: Recorder) -> None:
    async def wait(path: str) -> str:
        await asyncio.Event().wait()
        return path

    call, said = ("wait", READ[1]), "Tool 'wait' timed out after 0.01 seconds."
    wordings = {None: said, lambda context, error: f"sorry: {error}": f"sorry: {said}"}
    for explain, expected in wordings.items():
        async with fleet.session("g"):
            result = await run(Script(call), function_tool(wait, timeout=0.01, timeout_error_function=explain))
        assert [each.output for each in result.new_items if each.type == "tool_call_output_item"] == [expected]
    raising = function_tool(timeout=0.01, timeout_behavior="raise_exception")(wait)
    with pytest.raises(ToolTimeoutError):
        await run(Script(call), raising)  # without a session
    with pytest.raises(ToolTimeoutError):
        async with fleet.session("g"):
            await run(Script(call), raising)
    assert [recorder.error(each) for each in recorder.outcomes] == [(ToolTimeoutError.__name__, said)] * 3


@pytest.mark.parametrize("arguments", ["{", '{"file": 1}'])
async def test_a_call_that_the_sdk_refuses_did_not_succeed(fleet: Fleet, recorder: Recorder, arguments: str) -> None:
    async with fleet.session("g"):
        await run(Script(("read_file", arguments)), function_tool(read_file))
    error = recorder.error(recorder.outcomes[0])
    assert error is not None and error[0] == ModelBehaviorError.__name__


async def test_an_approved_run_is_a_further_part_of_its_thread(fleet: Fleet, recorder: Recorder) -> None:
    config = RunConfig(call_model_input_filter=tell)
    asking = Agent("a", model=Script(READ), tools=[function_tool(read_file, needs_approval=True)])
    async with fleet.session("g", session_id="t1", resume=True):
        waiting = await Runner.run(asking, "go", run_config=config)
    assert recorder.kinds == ["session.started", "session.ended"]
    state = waiting.to_state()
    state.approve(waiting.interruptions[0])
    async with fleet.session("g", session_id="t1", resume=True):
        await Runner.run(asking, state, run_config=config)
    assert [each[events.RESULT] for each in recorder.outcomes] == ["text of /srv/a"]
    assert len({event.session for event in recorder.events}) == 2


def test_sync_runs_are_recorded(fleet: Fleet, recorder: Recorder) -> None:
    reading = Agent("a", model=Script(READ, DENY), tools=[function_tool(read_file)])
    with asyncio.Runner() as runner, fleet.session("g"):
        asyncio.set_event_loop(runner.get_loop())  # else the package makes one that nobody closes
        Runner.run_sync(reading, "go", run_config=RunConfig(call_model_input_filter=tell))
    asyncio.set_event_loop(None)
    assert {recorder.error(each) for each in recorder.outcomes} == {None, DENIED}


async def test_a_streamed_run_is_recorded(fleet: Fleet, recorder: Recorder) -> None:
    reading = Agent("a", model=Script(READ, DENY), tools=[function_tool(read_file)])
    async with fleet.session("g"):
        async for _ in Runner.run_streamed(reading, "go").stream_events():
            pass
    assert {recorder.error(each) for each in recorder.outcomes} == {None, DENIED}


async def test_the_model_is_told_before_each_turn(fleet: Fleet) -> None:
    script = Script(READ)
    async with fleet.session(GOAL, task="look") as session:
        await run(script, function_tool(read_file), instructions="Be brief.")
    assert len(script.heard) == 2 and len(set(script.heard)) == 1
    assert str(script.heard[0]).startswith(f"Be brief.\n\n{session.introduction}\n\n<fleet-memory ")
    script = Script(READ)
    await run(script, function_tool(read_file), instructions="Be brief.")  # without a session
    assert script.heard == ["Be brief.", "Be brief."]
