"""Coding agents, each the program itself with a scripted model behind its API."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL
from pathlib import Path

import claude_agent_sdk
import httpx2
import orjson

from fleetlore import Fleet
from fleetlore.relay.app import relay_app
from tests.fleetlore.join.framework_doors import ROOT, SERVER
from tests.fleetlore.join.world import FOUND, GOAL, Scripted, World
from tests.fleetlore.relay.provider import Provider
from tests.served import serving

# Comes with the SDK.
CLAUDE_CODE = str(Path(claude_agent_sdk.__file__).parent / "_bundled/claude")
TOOL = "mcp__shop__search"


async def claude_code(world: World, fleet: Fleet, model: Scripted) -> None:
    """With the hooks of `fleetlore install`, a relay, and the tool on an MCP server of its own."""
    made, home = world.folder / "made", world.folder / fleet.agent
    work = home / "work"
    work.mkdir(parents=True)
    made.write_text("")
    server = {"type": "stdio", "command": sys.executable, "args": ["-c", SERVER, str(made)]}
    (work / "mcp.json").write_bytes(orjson.dumps({"mcpServers": {"shop": server}}))
    async with serving(relay_app({"default": fleet})) as relay, serving(Provider(model.choose, TOOL).app) as provider:
        # A relay knows a server's tools once the agent called them.
        async with httpx2.AsyncClient(timeout=120, headers={"Fleetlore-Agent": f"{fleet.agent}:claude-code"}) as http:
            before = {"tool_name": TOOL, "tool_input": {}, "tool_use_id": "1", "tool_response": FOUND}
            before |= {"session_id": "before", "hook_event_name": "PostToolUse"}
            assert (await http.post(f"{relay}/v1/hooks/claude-code", json=before)).json() == {}
        world.recorder.events.clear()
        env = {"HOME": str(home), "USER": fleet.agent, "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        env |= {"ANTHROPIC_BASE_URL": provider, "ANTHROPIC_API_KEY": "sk-none", "IS_SANDBOX": "1"}
        env |= {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        install = ["-m", "fleetlore.cli.main", "install", "claude-code", "--yes", "--relay", relay]
        options = ["--mcp-config", str(work / "mcp.json"), "--strict-mcp-config", "--allowedTools", TOOL]
        for command in ([sys.executable, *install], [CLAUDE_CODE, "-p", GOAL, *options]):
            process = await asyncio.create_subprocess_exec(*command, env=env, cwd=work, stdin=DEVNULL, stdout=DEVNULL)
            assert await process.wait() == 0
    world.made += made.read_text().split()
