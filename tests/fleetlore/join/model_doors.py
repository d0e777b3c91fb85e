"""Agents that are joined where they call their model: through the gateway, by a wrapped client, by LiteLLM."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fleetlore import Fleet
from fleetlore.join.model_clients import wrap_anthropic, wrap_openai
from fleetlore.relay.app import relay_app
from tests.fleetlore.join.framework_doors import Door
from tests.fleetlore.join.sdk_agents import AGENTS, OPENAI, client_of, run
from tests.fleetlore.join.world import GOAL, TASK, Scripted, World
from tests.fleetlore.relay.conftest import serving
from tests.fleetlore.relay.provider import Provider


@asynccontextmanager
async def relaying(fleet: Fleet, provider: Provider) -> AsyncIterator[str]:
    """The address of a relay in front of a provider."""
    async with serving(provider.app) as upstream:
        providers = {"openai": f"{upstream}/v1", "anthropic": upstream}
        async with serving(relay_app({"default": fleet}, providers=providers)) as address:
            yield address


async def through_gateway(agent: str, world: World, fleet: Fleet, provider: Provider) -> None:
    headers = {"Fleetlore-Agent": fleet.agent, "Fleetlore-Task": TASK}
    async with relaying(fleet, provider) as relay:
        address = f"{relay}/openai/v1" if agent in OPENAI else f"{relay}/anthropic"
        await run(AGENTS[agent], client_of(agent, address, default_headers=headers), world)


async def by_wrapping(agent: str, world: World, fleet: Fleet, provider: Provider, *, blocking: bool = False) -> None:
    wrap = wrap_openai if agent in OPENAI else wrap_anthropic
    async with serving(provider.app) as upstream, fleet.session(GOAL, task=TASK):
        address = f"{upstream}/v1" if agent in OPENAI else upstream
        await run(AGENTS[agent], wrap(client_of(agent, address, blocking=blocking)), world)


def gateway(agent: str) -> Door:
    async def door(world: World, fleet: Fleet, model: Scripted) -> None:
        await through_gateway(agent, world, fleet, Provider(model.choose))

    return door


def wrapped(agent: str, *, blocking: bool = False) -> Door:
    async def door(world: World, fleet: Fleet, model: Scripted) -> None:
        await by_wrapping(agent, world, fleet, Provider(model.choose), blocking=blocking)

    return door
