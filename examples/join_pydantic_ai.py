"""Run a pydantic-ai agent in a fleet. The model is scripted, so no key is needed. It prints what it read.

    pip install 'fleetlore[pydantic-ai]'  # from your index
    fleetlore up --data ./lore        # in another terminal
    python examples/join_pydantic_ai.py ./lore

Run it twice: the second time the wrong call is held once, and the model is told what got past its failure.
"""

import asyncio
import sys

from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from fleetlore import Fleet
from fleetlore.join.pydantic_ai import FleetLore

GOAL = "What is the port of the service?"


def read_config(path: str) -> str:
    """Read a file of the service."""
    if path != "/srv/app/service.toml":
        raise ModelRetry(f"FileNotFoundError: [Errno 2] No such file or directory: {path!r}")
    return "port = 8080"


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Reads a wrong path first, then the right one."""
    print("told:", info.instructions or "nothing")
    turn = sum(isinstance(message, ModelResponse) for message in messages)
    if turn == 2:
        return ModelResponse([TextPart("It is 8080.")])
    path = ("/etc/service.toml", "/srv/app/service.toml")[turn]
    return ModelResponse([ToolCallPart("read_config", {"path": path})])


async def main() -> None:
    agent = Agent(FunctionModel(script), tools=[read_config], capabilities=[FleetLore()])
    data = sys.argv[1] if len(sys.argv) > 1 else None
    async with Fleet("pydantic-ai", data=data) as fleet, fleet.session(GOAL, task="config") as session:
        result = await agent.run(GOAL)
        session.succeed()
    print(f"{result.output} ({session.calls} calls, {session.errors} failed)")


asyncio.run(main())
