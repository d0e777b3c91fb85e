"""Agents in code of their own, in frameworks and over MCP, each with a scripted model."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest

from fleetlore import CallHeld, Fleet, tool
from fleetlore.join.mcp.http_proxy import forwarding_app
from tests import served
from tests.fleetlore.join.world import ERROR, FOUND, GOAL, MOST_TURNS, NOW, TASK, WRONG, Scripted, World
from tests.read_back import read_back

ROOT = Path(__file__).parents[3]


async def own_code(world: World, fleet: Fleet, model: Scripted) -> None:
    search = tool(world.search)
    async with fleet.session(GOAL, task=TASK) as session:
        messages = [session.introduction, session.brief(["search"]).text]
        while (index := model.choose(*messages)) is not None:
            try:
                messages.append(search(index))
            except CallHeld as held:
                messages.append(str(held))
            except LookupError as error:
                messages += [str(error), session.advise().text]


async def langchain(world: World, fleet: Fleet, model: Scripted) -> None:
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    from fleetlore.join.langchain import FleetMiddleware
    from tests.fleetlore.join.langchain_errors import ToolErrorMiddleware

    class Chat(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **options: Any) -> Any:
            return self

        def _generate(self, messages: Any, *args: Any, **options: Any) -> Any:
            index = model.choose(*messages)
            call = {"name": "search", "args": {"index": index}, "id": f"call-{len(messages)}"}
            self.messages = iter([AIMessage("done") if index is None else AIMessage("", tool_calls=[call])])
            return super()._generate(messages, *args, **options)

    errors: Any = ToolErrorMiddleware(lambda error, request: str(error))
    chat = Chat(messages=iter([]))
    agent: Any = create_agent(chat, tools=[world.search], middleware=[errors, FleetMiddleware()])
    async with fleet.session(GOAL, task=TASK):
        await agent.ainvoke({"messages": [("user", GOAL)]})


async def openai_agents(world: World, fleet: Fleet, model: Scripted) -> None:
    from agents import Agent, RunConfig, Runner

    from fleetlore.join.openai_agents import function_tool, tell
    from tests.fleetlore.join.test_openai_agents import Script

    class Choosing(Script):
        async def get_response(self, system_instructions: Any, input: Any, *args: Any, **options: Any) -> Any:
            index = model.choose(system_instructions, *input)
            calls = [] if index is None else [("search", orjson.dumps({"index": index}).decode())]
            return await Script(*calls, first=len(model.sent)).get_response(None)

    agent = Agent("a", model=Choosing(), tools=[function_tool(world.search)])
    async with fleet.session(GOAL, task=TASK):
        await Runner.run(agent, GOAL, run_config=RunConfig(call_model_input_filter=tell))


async def pydantic_ai(world: World, fleet: Fleet, model: Scripted) -> None:
    from pydantic_ai import Agent, ModelRetry
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from fleetlore.join.pydantic_ai import FleetLore

    def answer(messages: Any, info: Any) -> ModelResponse:
        parts = [part for message in messages for part in message.parts]
        index = model.choose(info.instructions or "", *parts)
        return ModelResponse([TextPart("done") if index is None else ToolCallPart("search", {"index": index})])

    def search(index: str) -> str:
        try:
            return world.search(index)
        except LookupError as error:
            raise ModelRetry(f"LookupError: {error}") from None

    agent = Agent(FunctionModel(answer), tools=[search], capabilities=[FleetLore()], retries=MOST_TURNS)
    async with fleet.session(GOAL, task=TASK):
        await agent.run(GOAL)


async def claude(world: World, fleet: Fleet, model: Scripted) -> None:
    from tests.fleetlore.join.test_claude import BASE, Process

    async with fleet.session(GOAL, task=TASK) as session:
        process = Process(session, ["search"])
        prompt = {**BASE, "hook_event_name": "UserPromptSubmit", "prompt": GOAL}
        messages = [GOAL, await process.send(prompt)]
        while (index := model.choose(*messages)) is not None:
            call = {"tool_name": "search", "tool_input": {"index": index}, "tool_use_id": f"call-{len(messages)}"}
            process.denied = False
            said = await process.send({"hook_event_name": "PreToolUse", **call})
            if process.denied:
                messages.append(said)
                continue
            try:
                done = {"tool_response": world.search(index)}
                said += await process.send({"hook_event_name": "PostToolUse", **call, **done})
                messages += [str(done), said]
            except LookupError as error:
                text = f"LookupError: {error}"
                said += await process.send({"hook_event_name": "PostToolUseFailure", **call, "error": text})
                messages += [text, said]


async def _converse(client: Any, model: Scripted) -> None:
    tools = (await client.list_tools()).tools
    messages: list[object] = [client.instructions, *tools]
    while (index := model.choose(*messages)) is not None:
        result = await client.call_tool("search", {"index": index})
        messages += [getattr(part, "text", "") for part in result.content]


async def mcp_over_http(world: World, fleet: Fleet, model: Scripted, mode: Any = "auto") -> None:
    from mcp.client.streamable_http import streamable_http_client

    from fleetlore.join.mcp.server import MCPServer, ToolError
    from tests.fleetlore.join.mcp_sdk import IS_OLD, Client
    from tests.fleetlore.join.test_mcp_proxy import serving

    if IS_OLD:
        pytest.skip("mcp 1.x")

    server = MCPServer("shop")

    @server.tool()
    def search(index: str) -> str:
        try:
            return world.search(index)
        except LookupError as error:
            raise ToolError(f"LookupError: {error}") from None

    async with (
        serving(server.streamable_http_app()) as address,
        serving(forwarding_app(fleet, address, goal=GOAL, task=TASK)) as proxy,
        httpx2.AsyncClient(timeout=120) as http,
        Client(streamable_http_client(proxy, http_client=http), mode=mode) as client,
    ):
        await _converse(client, model)


async def mcp_over_http_of_old(world: World, fleet: Fleet, model: Scripted) -> None:
    """By the protocol in which a connection begins with `initialize`."""
    await mcp_over_http(world, fleet, model, "legacy")


SERVER = f"""
import sys
from fleetlore.join.mcp.server import MCPServer, ToolError

server = MCPServer("shop")

@server.tool()
def search(index: str) -> str:
    with open(sys.argv[1], "a") as made:
        print(index, file=made)
    if index == {WRONG!r}:
        raise ToolError("LookupError: " + {ERROR!r})
    return {FOUND!r}

server.run()
"""
PROXY = """
import sys
from pathlib import Path

from fleetlore import Fleet, MemoryItem, Pattern
from fleetlore.kafka.encode import encode_event
from fleetlore.join.mcp.proxy import run_command
from fleetlore.testing import FakeClock
from tests.doubles.recorder import Recorder

folder, name, hold, now, goal, task, *command = sys.argv[1:]
recorder = Recorder()
fleet = Fleet(name, broker="nowhere:1", holdout_share=0.0, hold=hold, clock=FakeClock(float(now)))
fleet.emitter = recorder
for line in (Path(folder) / "patterns").read_bytes().splitlines():
    fleet.replica.index.put_pattern(Pattern.from_json(line))
for line in (Path(folder) / "items").read_bytes().splitlines():
    fleet.replica.index.put_item(MemoryItem.from_json(line))
with fleet.session(goal, task=task) as session:
    run_command(command, session)
(Path(folder) / "events").write_bytes(b"\\n".join(map(encode_event, recorder.events)))
"""


async def mcp_over_stdio(world: World, fleet: Fleet, model: Scripted) -> None:
    """The proxy as a process between the official client and a server, with what the fleet knows in files."""
    from mcp import StdioServerParameters

    from tests.fleetlore.join.mcp_sdk import Client

    made, log = world.folder / "made", world.folder / "events"
    for name in ("patterns", "items"):
        (world.folder / name).write_bytes(b"\n".join(world.pipeline.store.bodies(name)))
    made.write_text("")
    log.unlink(missing_ok=True)
    given = [str(world.folder), fleet.agent, fleet.settings.hold, str(fleet.clock.now()), GOAL, TASK]
    server = [sys.executable, "-c", SERVER, str(made)]
    environ = {"FLEETLORE_QUORUM": str(fleet.settings.quorum)}
    proxy = StdioServerParameters(command=sys.executable, args=["-c", PROXY, *given, *server], cwd=ROOT, env=environ)
    async with Client(proxy) as client:
        await _converse(client, model)
    while not (log.exists() and log.read_bytes()):
        await asyncio.sleep(0.1)  # the process writes it when its client has gone
    world.made += made.read_text().split()
    lines = map(orjson.loads, log.read_bytes().splitlines())
    world.recorder.events += [read_back(line, "default", NOW + 1e6) for line in lines]


CLAUDE_TOOL = "mcp__shop__search"


async def claude_code(world: World, fleet: Fleet, model: Scripted) -> None:
    """With the hooks of `fleetlore install`, a relay, and the tool on an MCP server of its own."""
    import claude_agent_sdk

    from fleetlore.relay.app import relay_app
    from tests.fleetlore.relay.provider import Provider

    code = Path(claude_agent_sdk.__file__).parent / "_bundled/claude"  # comes with the SDK
    made, home = world.folder / "made", world.folder / fleet.agent
    work = home / "work"
    work.mkdir(parents=True)
    made.write_text("")
    server = {"type": "stdio", "command": sys.executable, "args": ["-c", SERVER, str(made)]}
    (work / "mcp.json").write_bytes(orjson.dumps({"mcpServers": {"shop": server}}))
    async with (
        served.serving(relay_app({"default": fleet})) as relay,
        served.serving(Provider(model.choose, CLAUDE_TOOL).app) as provider,
    ):
        # A relay knows a server's tools once the agent called them.
        async with httpx2.AsyncClient(timeout=120, headers={"Fleetlore-Agent": f"{fleet.agent}:claude-code"}) as http:
            before = {"tool_name": CLAUDE_TOOL, "tool_input": {}, "tool_use_id": "1", "tool_response": FOUND}
            before |= {"session_id": "before", "hook_event_name": "PostToolUse"}
            assert (await http.post(f"{relay}/v1/hooks/claude-code", json=before)).json() == {}
        world.recorder.events.clear()
        env = {"HOME": str(home), "USER": fleet.agent, "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        env |= {"ANTHROPIC_BASE_URL": provider, "ANTHROPIC_API_KEY": "sk-none", "IS_SANDBOX": "1"}
        env |= {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        install = ["-m", "fleetlore.cli.main", "install", "claude-code", "--yes", "--relay", relay]
        options = ["--mcp-config", str(work / "mcp.json"), "--strict-mcp-config", "--allowedTools", CLAUDE_TOOL]
        for command in ([sys.executable, *install], [str(code), "-p", GOAL, *options]):
            process = await asyncio.create_subprocess_exec(*command, env=env, cwd=work, stdin=DEVNULL, stdout=DEVNULL)
            assert await process.wait() == 0
    world.made += made.read_text().split()


CODEX_SETTINGS = """
model = "m"
model_provider = "local"
[model_providers.local]
name = "local"
base_url = "{provider}/v1"
env_key = "NO_KEY"
[mcp_servers.shop]
command = {command}
args = {args}
required = true
"""


async def codex(world: World, fleet: Fleet, model: Scripted) -> None:
    """With its hooks, a relay and the tool on an MCP server, as Claude Code."""
    from fleetlore.relay.app import relay_app
    from tests.fleetlore.relay.provider import Provider

    made, home = world.folder / "made", world.folder / fleet.agent
    home.mkdir()
    made.write_text("")
    async with (
        served.serving(relay_app({"default": fleet})) as relay,
        served.serving(Provider(model.choose, "search", "mcp__shop").app) as provider,
    ):
        async with httpx2.AsyncClient(timeout=120, headers={"Fleetlore-Agent": f"{fleet.agent}:codex"}) as http:
            before = {"tool_name": CLAUDE_TOOL, "tool_input": {}, "tool_use_id": "1", "tool_response": FOUND}
            before |= {"session_id": "before", "hook_event_name": "PostToolUse"}
            assert (await http.post(f"{relay}/v1/hooks/codex", json=before)).json() == {}
        world.recorder.events.clear()
        server = {"command": json.dumps(sys.executable), "args": json.dumps(["-c", SERVER, str(made)])}
        (home / "config.toml").write_text(CODEX_SETTINGS.format(provider=provider, **server))
        env = {"HOME": str(home), "CODEX_HOME": str(home), "USER": fleet.agent, "PATH": os.environ["PATH"]}
        env |= {"PYTHONPATH": str(ROOT), "NO_KEY": "none"}
        install = [sys.executable, "-m", "fleetlore.cli.main", "install", "codex", "--yes", "--relay", relay]
        options = ["--skip-git-repo-check", "--dangerously-bypass-hook-trust", "--sandbox", "danger-full-access"]
        for command in (install, ["codex", "exec", *options, GOAL]):
            process = await asyncio.create_subprocess_exec(*command, env=env, cwd=home, stdin=DEVNULL, stdout=DEVNULL)
            assert await process.wait() == 0
    world.made += made.read_text().split()
