"""Run an agent of the OpenAI Agents SDK in a fleet. The model is scripted, so no key is needed. It prints what it
read.

    pip install 'fleetlore[openai-agents]'  # from your index
    fleetlore up --data ./lore        # in another terminal
    python examples/join_openai_agents.py ./lore

Run it twice: the second time the wrong call is held once, and the model is told what got past its failure.
"""

import asyncio
import sys
from typing import Any

import orjson
from agents import Agent, ModelResponse, RunConfig, Runner, Usage, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from fleetlore import Fleet
from fleetlore.join.openai_agents import function_tool, tell

GOAL = "What is the port of the service?"


@function_tool
def read_config(path: str) -> str:
    """Read a file of the service."""
    if path != "/srv/app/service.toml":
        raise FileNotFoundError(2, "No such file or directory", path)
    return "port = 8080"


class Script(Model):
    """Reads a wrong path first, then the right one."""

    def __init__(self) -> None:
        calls = [
            ResponseFunctionToolCall(
                type="function_call", name="read_config", arguments=orjson.dumps({"path": path}).decode(), call_id=path
            )
            for path in ("/etc/service.toml", "/srv/app/service.toml")
        ]
        text = ResponseOutputText(type="output_text", text="It is 8080.", annotations=[])
        said = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        self._turns = iter([*calls, said])

    async def get_response(self, system_instructions: str | None, *args: Any, **options: Any) -> ModelResponse:
        print("told:", system_instructions or "nothing")
        return ModelResponse(output=[next(self._turns)], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError


async def main() -> None:
    set_tracing_disabled(True)
    agent = Agent("reader", model=Script(), tools=[read_config])
    data = sys.argv[1] if len(sys.argv) > 1 else None
    async with Fleet("openai-agents", data=data) as fleet, fleet.session(GOAL, task="config") as session:
        result = await Runner.run(agent, GOAL, run_config=RunConfig(call_model_input_filter=tell))
        session.succeed()
    print(f"{result.final_output} ({session.calls} calls, {session.errors} failed)")


asyncio.run(main())
