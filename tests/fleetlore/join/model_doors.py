"""Agents that are joined where they call their model: through the gateway, by a wrapped client, by LiteLLM."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import orjson

from fleetlore import Fleet
from fleetlore.join.model_clients import wrap_anthropic, wrap_openai
from fleetlore.relay.app import relay_app
from tests.fleetlore.join.sdk_agents import AGENTS, KEY, OPENAI, PARAMETERS, client_of, made, run
from tests.fleetlore.join.world import GOAL, TASK, Door, Scripted, World
from tests.fleetlore.relay.provider import Provider
from tests.served import serving

LITELLM_LISTS = ("callbacks", "input_callback", "success_callback", "failure_callback", "service_callback")
LITELLM_LISTS += ("_async_input_callback", "_async_success_callback", "_async_failure_callback")


@asynccontextmanager
async def relaying(fleet: Fleet, provider: Provider) -> AsyncIterator[str]:
    """The address of a relay in front of a provider."""
    async with serving(provider.app) as upstream:
        providers = {"openai": f"{upstream}/v1", "anthropic": upstream}
        async with serving(relay_app({"default": fleet}, providers=providers)) as address:
            yield address


def gateway(agent: str) -> Door:
    """A provider receives the headers for it and none of those for the relay."""

    async def door(world: World, fleet: Fleet, model: Scripted) -> None:
        provider = Provider(model.choose)
        headers = {"Fleetlore-Agent": fleet.agent, "Fleetlore-Task": TASK}
        async with relaying(fleet, provider) as relay:
            address = f"{relay}/openai/v1" if agent in OPENAI else f"{relay}/anthropic"
            await run(AGENTS[agent], client_of(agent, address, default_headers=headers), world)
        assert "Be kind." in model.sent[0][0]
        for headers in provider.headers:
            assert KEY in (headers.get("authorization", "").removeprefix("Bearer "), headers.get("x-api-key"))
            assert not [name for name in headers if name.startswith("fleetlore")]

    return door


def wrapped(agent: str, *, blocking: bool = False) -> Door:
    async def door(world: World, fleet: Fleet, model: Scripted) -> None:
        wrap = wrap_openai if agent in OPENAI else wrap_anthropic
        async with serving(Provider(model.choose).app) as upstream, fleet.session(GOAL, task=TASK):
            address = f"{upstream}/v1" if agent in OPENAI else upstream
            await run(AGENTS[agent], wrap(client_of(agent, address, blocking=blocking)), world)
        assert "Be kind." in model.sent[0][0]

    return door


async def by_litellm(
    world: World, fleet: Fleet, provider: Provider, model: str, *, blocking: bool = False, streamed: bool = False
) -> None:
    """An agent whose models LiteLLM calls; a blocking one in a thread, for the servers run in this one."""
    import litellm as lite  # takes seconds

    async with serving(provider.app) as upstream, fleet.session(GOAL, task=TASK):
        address = upstream if model.startswith("anthropic/") else f"{upstream}/v1"
        tool = {"type": "function", "function": {"name": "search", "parameters": PARAMETERS}}
        messages: list[Any] = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": GOAL}]
        asked = {"model": model, "api_base": address, "api_key": KEY, "tools": [tool], "stream": streamed}

        async def answer() -> Any:
            if blocking:
                found = await asyncio.to_thread(lite.completion, messages=messages, **asked)
                return lite.stream_chunk_builder(await asyncio.to_thread(list, found)) if streamed else found
            found = await lite.acompletion(messages=messages, **asked)
            return lite.stream_chunk_builder([part async for part in found]) if streamed else found

        while (message := (await answer()).choices[0].message).tool_calls:
            messages.append(message)
            for call in message.tool_calls:
                text, _ = made(world, orjson.loads(call.function.arguments)["index"])
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


async def litellm(world: World, fleet: Fleet, model: Scripted) -> None:
    with called_back():
        await by_litellm(world, fleet, Provider(model.choose), "openai/m")


@contextmanager
def called_back() -> Iterator[None]:
    """With the callback among those of LiteLLM, whose list is one for the process."""
    import litellm as lite

    from fleetlore.join.litellm import FleetCallback

    before = {name: list(getattr(lite, name)) for name in LITELLM_LISTS}
    lite.callbacks.append(FleetCallback())
    try:
        yield
    finally:
        for name, each in before.items():
            getattr(lite, name)[:] = each
