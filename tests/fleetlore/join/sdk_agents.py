"""Agents on the official SDKs, for any client of theirs: asynchronous or not, streamed or not."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from inspect import isawaitable
from typing import Any

import orjson

from tests.fleetlore.join.world import GOAL, World

PARAMETERS = {"type": "object", "properties": {"index": {"type": "string"}}, "required": ["index"]}

# Called with a client and the world that its tool searches in.
Agent = Callable[[Any, World], Awaitable[None]]


def made(world: World, index: str) -> tuple[str, bool]:
    """Return the text of a tool's answer, and whether it failed."""
    try:
        return world.search(index), False
    except LookupError as error:
        return f"LookupError: {error}", True


async def chat(client: Any, world: World, *, streamed: bool = False) -> None:
    messages: list[Any] = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": GOAL}]
    tools: Any = [{"type": "function", "function": {"name": "search", "parameters": PARAMETERS, "strict": True}}]
    of = client.chat.completions
    while True:
        ask = of.stream if streamed else of.create
        answer = await _whole(ask(model="m", messages=messages, tools=tools), "get_final_completion")
        message = answer.choices[0].message
        if not message.tool_calls:
            return
        messages.append(message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
        for call in message.tool_calls:
            text, _ = made(world, orjson.loads(call.function.arguments)["index"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


async def responses(client: Any, world: World, *, streamed: bool = False, stored: bool = False) -> None:
    items: list[Any] = [{"role": "user", "content": GOAL}]
    tools: Any = [{"type": "function", "name": "search", "parameters": PARAMETERS, "strict": True}]
    options: dict[str, Any] = {"model": "m", "instructions": "Be kind.", "tools": tools}
    while True:
        ask = client.responses.stream if streamed else client.responses.create
        answer = await _whole(ask(input=items, **options), "get_final_response")
        calls = [each for each in answer.output if each.type == "function_call"]
        if not calls:
            return
        if stored:
            items, options["previous_response_id"] = [], answer.id
        else:
            items += [
                {"type": "function_call", **each.model_dump(include={"call_id", "name", "arguments"})} for each in calls
            ]
        for call in calls:
            text, _ = made(world, orjson.loads(call.arguments)["index"])
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": text})


async def messages(client: Any, world: World, *, streamed: bool = False) -> None:
    told: list[Any] = [{"role": "user", "content": GOAL}]
    system = [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]
    tools = [{"name": "search", "input_schema": PARAMETERS}]
    options: dict[str, Any] = {"model": "m", "max_tokens": 64, "system": system, "tools": tools}
    while True:
        ask = client.messages.stream if streamed else client.messages.create
        answer = await _whole(ask(messages=told, **options), "get_final_message")
        calls = [each for each in answer.content if each.type == "tool_use"]
        if not calls:
            return
        told.append({"role": "assistant", "content": [each.model_dump(exclude_none=True) for each in calls]})
        results = []
        for call in calls:
            text, failed = made(world, call.input["index"])
            results.append({"type": "tool_result", "tool_use_id": call.id, "content": text, "is_error": failed})
        told.append({"role": "user", "content": results})


async def _whole(asked: Any, final: str) -> Any:
    """The answer, of a client of either kind; of a stream what its method of this name gives at its end."""
    if hasattr(asked, "__aenter__"):
        async with asked as stream:
            return await getattr(stream, final)()
    if hasattr(asked, "__enter__"):
        with asked as stream:
            return getattr(stream, final)()
    return await asked if isawaitable(asked) else asked


async def run(agent: Agent, client: Any, world: World) -> None:
    """Run an agent, and close its client; one that is not asynchronous in a thread, for the servers run in this one."""
    if hasattr(client, "__aenter__"):
        async with client:
            await agent(client, world)
    else:
        with client:
            await asyncio.to_thread(asyncio.run, agent(client, world))


OPENAI: dict[str, Agent] = {
    "chat": chat,
    "chat streamed": partial(chat, streamed=True),
    "responses": responses,
    "responses streamed": partial(responses, streamed=True),
    "responses stored": partial(responses, stored=True),
    "responses stored streamed": partial(responses, streamed=True, stored=True),
}
ANTHROPIC: dict[str, Agent] = {"messages": messages, "messages streamed": partial(messages, streamed=True)}
AGENTS = OPENAI | ANTHROPIC
KEY = "sk-provider-00000000"


def client_of(agent: str, address: str, *, blocking: bool = False, **options: Any) -> Any:
    """The client that an agent of `AGENTS` takes; the address is that of OpenAI's `…/v1`, or Anthropic's."""
    library, name = ("openai", "OpenAI") if agent in OPENAI else ("anthropic", "Anthropic")
    kind = getattr(import_module(library), name if blocking else f"Async{name}")  # imported only now: it takes seconds
    return kind(base_url=address, api_key=KEY, **options)
