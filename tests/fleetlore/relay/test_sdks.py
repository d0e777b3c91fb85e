"""Agents on the official SDKs, whose code has nothing of fleetlore in it but the address: the second one is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI

from fleetlore import Fleet
from fleetlore.relay.app import relay_app
from fleetlore.wire import events as names
from tests.fleetlore.join.test_every_door import ERROR, GOAL, RIGHT, TASK, WRONG, Scripted, World
from tests.fleetlore.relay.conftest import serving
from tests.fleetlore.relay.provider import Provider

KEY = "sk-provider-00000000"
PARAMETERS = {"type": "object", "properties": {"index": {"type": "string"}}, "required": ["index"]}
NO_ANTHROPIC = "the SDK `anthropic` is not installed here"

Agent = Callable[[str, dict[str, str], World], Awaitable[None]]


def made(world: World, index: str) -> tuple[str, bool]:
    """What a tool says, and whether it failed."""
    try:
        return world.search(index), False
    except LookupError as error:
        return str(error), True


def chat(streamed: bool) -> Agent:
    async def run(address: str, headers: dict[str, str], world: World) -> None:
        client = AsyncOpenAI(base_url=f"{address}/openai/v1", api_key=KEY, default_headers=headers)
        messages: list[Any] = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": GOAL}]
        tools: Any = [{"type": "function", "function": {"name": "search", "parameters": PARAMETERS, "strict": True}}]
        while True:
            if streamed:
                async with client.chat.completions.stream(model="m", messages=messages, tools=tools) as stream:
                    answer: Any = await stream.get_final_completion()
            else:
                answer = await client.chat.completions.create(model="m", messages=messages, tools=tools)
            message = answer.choices[0].message
            if not message.tool_calls:
                return await client.close()
            messages.append(message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
            for call in message.tool_calls:
                said, failed = made(world, index_of(call.function.arguments))
                text = f"LookupError: {said}" if failed else said
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})

    return run


def responses(streamed: bool, stored: bool) -> Agent:
    async def run(address: str, headers: dict[str, str], world: World) -> None:
        client = AsyncOpenAI(base_url=f"{address}/openai/v1", api_key=KEY, default_headers=headers)
        items: list[Any] = [{"role": "user", "content": GOAL}]
        tools: Any = [{"type": "function", "name": "search", "parameters": PARAMETERS, "strict": True}]
        options: dict[str, Any] = {"model": "m", "instructions": "Be kind.", "tools": tools}
        while True:
            if streamed:
                async with client.responses.stream(input=items, **options) as stream:
                    answer: Any = await stream.get_final_response()
            else:
                answer = await client.responses.create(input=items, **options)
            calls = [each for each in answer.output if each.type == "function_call"]
            if not calls:
                return await client.close()
            if stored:
                items, options["previous_response_id"] = [], answer.id
            else:
                items += [
                    {"type": "function_call", **each.model_dump(include={"call_id", "name", "arguments"})}
                    for each in calls
                ]
            for call in calls:
                said, failed = made(world, index_of(call.arguments))
                text = f"LookupError: {said}" if failed else said
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": text})

    return run


def messages(streamed: bool) -> Agent:
    async def run(address: str, headers: dict[str, str], world: World) -> None:
        anthropic: Any = pytest.importorskip("anthropic", reason=NO_ANTHROPIC)
        client = anthropic.AsyncAnthropic(base_url=f"{address}/anthropic", api_key=KEY, default_headers=headers)
        told: list[Any] = [{"role": "user", "content": GOAL}]
        system = [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]
        tools = [{"name": "search", "input_schema": PARAMETERS}]
        options: dict[str, Any] = {"model": "m", "max_tokens": 64, "system": system, "tools": tools}
        while True:
            if streamed:
                async with client.messages.stream(messages=told, **options) as stream:
                    answer: Any = await stream.get_final_message()
            else:
                answer = await client.messages.create(messages=told, **options)
            calls = [each for each in answer.content if each.type == "tool_use"]
            if not calls:
                return await client.close()
            told.append({"role": "assistant", "content": [each.model_dump(exclude_none=True) for each in calls]})
            results = []
            for call in calls:
                said, failed = made(world, call.input["index"])
                results.append({"type": "tool_result", "tool_use_id": call.id, "content": said, "is_error": failed})
            told.append({"role": "user", "content": results})

    return run


def index_of(arguments: str) -> str:
    return str(httpx2.Response(200, content=arguments).json()["index"])


AGENTS: dict[str, Agent] = {
    "chat": chat(False),
    "chat streamed": chat(True),
    "responses": responses(False, False),
    "responses streamed": responses(True, False),
    "responses stored": responses(False, True),
    "responses stored streamed": responses(True, True),
    "messages": messages(False),
    "messages streamed": messages(True),
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@asynccontextmanager
async def relaying(fleet: Fleet, provider: Provider) -> AsyncIterator[str]:
    async with serving(provider.app) as upstream:
        providers = {"openai": f"{upstream}/v1", "anthropic": upstream}
        async with serving(relay_app({"default": fleet}, providers=providers)) as address:
            yield address


async def run(world: World, agent: str, model: Scripted) -> Provider:
    provider, fleet = Provider(model.choose), world.fleet()
    headers = {"Fleetlore-Agent": fleet.agent, "Fleetlore-Task": TASK}
    async with relaying(fleet, provider) as address:
        await AGENTS[agent](address, headers, world)
    return provider


@pytest.mark.parametrize("agent", AGENTS)
async def test_the_second_agent_reads_the_way_out_before_its_first_choice(world: World, agent: str) -> None:
    provider = await run(world, agent, Scripted(WRONG))
    assert world.made == [WRONG, RIGHT], "nothing was known, so nothing was said"
    assert world.recorder.kinds == ["session.started", "outcome", "outcome", "session.ended"]
    failed, worked = world.recorder.outcomes
    assert failed[names.ARGUMENTS] == {"index": WRONG} and ERROR in failed[names.ERROR_MESSAGE]
    assert worked[names.ARGUMENTS] == {"index": RIGHT} and names.ERROR_TYPE not in worked
    assert world.recorder.events[0].data[names.GOAL] == GOAL
    for headers in provider.headers:
        assert KEY in (headers.get("authorization", "").removeprefix("Bearer "), headers.get("x-api-key"))
        assert not [name for name in headers if name.startswith("fleetlore")]
    await world.learn()
    model = Scripted()
    await run(world, agent, model)
    assert model.chosen == world.made == [RIGHT]


@pytest.mark.parametrize("agent", AGENTS)
async def test_what_was_sent_is_a_prefix_of_what_is_sent_next(world: World, agent: str) -> None:
    """What a provider caches of a prompt is read again at every turn, though more becomes known meanwhile."""
    await run(world, agent, Scripted(WRONG))
    await world.learn()
    model = Scripted(WRONG, WRONG, obeys=False)
    await run(world, agent, model)
    assert world.made == [WRONG, WRONG, RIGHT] and len(model.sent) == 4
    for before, after in zip(model.sent, model.sent[1:], strict=False):
        assert after[: len(before)] == before
    assert "Be kind." in model.sent[0][0] and "fleet-memory" in "".join(model.sent[0][:2])
