"""Time a hint from a person's decision to every agent: `python -m benchmarks.hints --agents 1000 --relay`.

All agents run in this process, and each has its own client. It follows the embedded broker, or one relay that runs in a
second process. The time runs from the call that the console and `fleetlore hints add` make to the moment at which the
agent's copy of the lore has the hint.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Annotated

import numpy as np
import orjson
import typer

from benchmarks.command import command_app
from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.advice.decide import Draft, write
from fleetlore.cluster import Relay
from fleetlore.config import Settings
from fleetlore.recall.index import LoreIndex
from fleetlore.recall.replica import LoreReplica
from sinks.topics import ensure_topics
from streams.embedded.broker import free_port
from streams.offline.operator_word import decide

BAR_SECONDS = 1.0
_TENANT = "default"
_POLL_SECONDS = 0.002
_MOST_SECONDS = 60.0
_START_SECONDS = 600.0


def hints(
    agents: Annotated[int, typer.Option(min=1, help="Agents that follow.")] = 1000,
    count: Annotated[int, typer.Option("--hints", min=1, help="Hints that are written, one after the other.")] = 20,
    relay: Annotated[bool, typer.Option("--relay", help="The agents follow a relay.")] = False,
    json: Annotated[bool, typer.Option("--json", help="End with one JSON line.")] = False,
) -> None:
    """Print how long a hint takes to every agent."""
    seconds = asyncio.run(reached(agents, count, relay))
    middle, high = (float(each) for each in np.quantile(seconds, (0.5, 0.99)))
    met = "met" if high <= BAR_SECONDS else "MISSED"
    typer.echo(f"{count} hints to {agents} agents: p50 {middle:.3f} s, p99 {high:.3f} s, bar {BAR_SECONDS:g} s: {met}")
    if json:
        typer.echo(orjson.dumps({"agents": agents, "p50": middle, "p99": high}).decode())


async def reached(agents: int, count: int, relay: bool = False) -> list[float]:
    """Return the seconds from the decision to the agent, for each hint and agent."""
    seconds: list[float] = []
    with EmbeddedBroker() as broker:
        settings = Settings(broker=broker.address, fetch_wait_ms=50)
        await ensure_topics(settings)
        async with _relay(broker.address) if relay else nullcontext() as address:
            places = [
                Relay(address=address, agent=f"agent-{n}", tenant=_TENANT) if address else settings.cluster
                for n in range(agents)
            ]
            replicas = [LoreReplica(place, _TENANT) for place in places]
            await asyncio.gather(*(each.start() for each in replicas))
            for each in replicas:
                if not await each.caught_up(_START_SECONDS):
                    raise typer.BadParameter(f"{agents} agents do not all start on this machine: give fewer")
            for number in range(count):
                draft = Draft(text=f"Use the table orders_{number}.", why="measured", start=True)
                decided = write(LoreIndex(), draft, by="ann", now=time.time())
                began = time.monotonic()
                told = asyncio.create_task(decide(settings, _TENANT, decided))
                seconds += await _arrivals(replicas, decided.id, began)
                await told
            await asyncio.gather(*(each.close() for each in replicas))
    return seconds


@asynccontextmanager
async def _relay(broker: str) -> AsyncIterator[str]:
    """Run a relay of this broker, and give its address."""
    address = f"127.0.0.1:{free_port()}"
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "fleetlore.cli.main", "relay", "--http", address, "--broker", broker),
        env=os.environ | {"FLEETLORE_FETCH_WAIT_MS": "50"},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert running.stdout is not None
        await running.stdout.readline()
        yield f"http://{address}"
    finally:
        running.terminate()
        await running.wait()


async def _arrivals(replicas: list[LoreReplica], id: str, began: float) -> list[float]:
    waiting, seconds = replicas, list[float]()
    async with asyncio.timeout(_MOST_SECONDS):
        while waiting:
            await asyncio.sleep(_POLL_SECONDS)
            left = [each for each in waiting if id not in each.index.hints.standing]
            seconds += [time.monotonic() - began] * (len(waiting) - len(left))
            waiting = left
    return seconds


if __name__ == "__main__":
    command_app(hints)()
