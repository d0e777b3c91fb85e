"""Run a LangChain agent in a fleet. The model is scripted, so no key is needed; it shows what it was told.

    pip install 'fleetlore[langchain]'  # from your index
    fleetlore up --data ./lore        # in another terminal
    python examples/join_langchain.py ./lore

Run it twice: the second time the wrong call is held once, and the model is told what got past its failure.
"""

import asyncio
import sys
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import ToolErrorMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from fleetlore import Fleet
from fleetlore.join.langchain import FleetMiddleware

GOAL = "What is the port of the service?"


def read_config(path: str) -> str:
    """Read a file of the service."""
    if path != "/srv/app/service.toml":
        raise FileNotFoundError(2, "No such file or directory", path)
    return "port = 8080"


class Script(GenericFakeChatModel):
    """Reads a wrong path first, then the right one."""

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: Any, *args: Any, **options: Any) -> Any:
        print("told:", *(each.text for each in messages if each.type in ("system", "tool")), sep="\n")
        return super()._generate(messages, *args, **options)


def script() -> Script:
    def call(path: str) -> AIMessage:
        return AIMessage("", tool_calls=[{"name": "read_config", "args": {"path": path}, "id": path}])

    return Script(messages=iter([call("/etc/service.toml"), call("/srv/app/service.toml"), AIMessage("It is 8080.")]))


async def main() -> None:
    errors = ToolErrorMiddleware(lambda error, request: str(error))
    agent: Any = create_agent(script(), tools=[read_config], middleware=[errors, FleetMiddleware()])
    data = sys.argv[1] if len(sys.argv) > 1 else None
    async with Fleet("langchain", data=data) as fleet, fleet.session(GOAL, task="config") as session:
        answer = await agent.ainvoke({"messages": [("user", GOAL)]})
        session.succeed()
    print(f"{answer['messages'][-1].text} ({session.calls} calls, {session.errors} failed)")


asyncio.run(main())
