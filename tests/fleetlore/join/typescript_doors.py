"""Agents in TypeScript: with the client of the relay, and on the SDKs of OpenAI and Vercel through the gateway."""

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from fleetlore import Fleet
from fleetlore.clock import SystemClock
from tests.fleetlore.join.model_doors import relaying
from tests.fleetlore.join.world import Door, Scripted, World
from tests.fleetlore.relay.provider import Provider
from tests.served import serving

CLIENT = Path(__file__).parents[3] / "clients/typescript"
MARKS = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
    pytest.mark.skipif(not (CLIENT / "node_modules").exists(), reason="run `npm ci` in clients/typescript"),
]
_BUILT: list[Path] = []


async def node(*command: str, **environ: str) -> str:
    """What a command says, run in the client's folder once that is built."""
    if not _BUILT:
        _BUILT.append(CLIENT)
        await node("npm", "run", "--silent", "build")
    to: dict[str, Any] = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.STDOUT}
    process = await asyncio.create_subprocess_exec(*command, cwd=CLIENT, env={**os.environ, **environ}, **to)
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


def example(name: str) -> Door:
    """An example of the client, which prints what it searches in."""

    async def door(world: World, fleet: Fleet, model: Scripted) -> None:
        fleet.clock = SystemClock()  # node's is the real one, and an event of the far future is refused
        provider = Provider(model.choose)
        async with relaying(fleet, provider) as relay, serving(provider.app) as upstream:
            keys = {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": f"{upstream}/v1", "AGENT": fleet.agent}
            output = await node("node", f"dist/examples/{name}.js", FLEETLORE_RELAY=relay, **keys)
        world.made += [line.split()[0] for line in output.splitlines() if line.startswith("products")]

    return door
