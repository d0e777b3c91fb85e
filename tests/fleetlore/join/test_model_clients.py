"""Wrapped clients of the official SDKs: what is recorded, what the model reads, and what stays as it is."""

from enum import Enum
from typing import Any

import orjson
import pytest

from fleetlore.join.conversations import SessionCalls
from fleetlore.join.dialects import CHAT_COMPLETIONS
from fleetlore.join.model_clients import wrap_anthropic, wrap_openai
from fleetlore.wire import events as names
from tests.fleetlore.join.model_doors import wrapped
from tests.fleetlore.join.sdk_agents import AGENTS, client_of, run
from tests.fleetlore.join.world import ERROR, GOAL, RIGHT, TASK, WRONG, Scripted, World
from tests.fleetlore.relay.provider import Provider
from tests.served import serving


class Role(str, Enum):  # noqa: UP042 - the text of a member is its name, and JSON holds its value
    USER = "user"


TOOLS: Any = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}]


async def learned(world: World) -> None:
    await wrapped("chat")(world, world.fleet(), Scripted(WRONG))
    await world.learn()


async def test_the_agent_s_own_messages_stay_as_they_are(world: World) -> None:
    await learned(world)
    provider, fleet = Provider(Scripted().choose), world.fleet()
    messages: list[Any] = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": GOAL}]
    before = orjson.dumps(messages)
    async with serving(provider.app) as upstream, fleet.session(GOAL, task=TASK):
        client = wrap_openai(client_of("chat", f"{upstream}/v1"))
        await client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
        await client.close()
    assert orjson.dumps(messages) == before and b"fleet-memory" in provider.bodies[0]


async def test_outside_a_session_nothing_is_done(world: World) -> None:
    provider = Provider(Scripted(WRONG).choose)
    async with serving(provider.app) as upstream:
        await run(AGENTS["chat"], wrap_openai(client_of("chat", f"{upstream}/v1")), world)
    assert world.made == [WRONG, RIGHT] and b"fleet-memory" not in b"".join(provider.bodies)


async def test_copies_of_a_client_raw_answers_and_beta_are_joined_too(world: World) -> None:
    await learned(world)
    provider, fleet = Provider(Scripted(obeys=False).choose), world.fleet()
    messages: Any = [{"role": "user", "content": GOAL}]
    tools: Any = [{"name": "search", "input_schema": {"type": "object"}}]
    async with serving(provider.app) as upstream, fleet.session(GOAL, task=TASK):
        async with wrap_openai(wrap_openai(client_of("chat", f"{upstream}/v1"))) as client:
            ask = client.with_options(max_retries=0).chat.completions
            await ask.with_raw_response.create(model="m", messages=messages, tools=TOOLS)
            async with ask.with_streaming_response.create(model="m", messages=messages, tools=TOOLS) as answer:
                assert (await answer.parse()).choices[0].message.tool_calls
            async for _ in await ask.create(model="m", messages=messages, tools=TOOLS, stream=True):
                break  # the rest is not read
        async with wrap_anthropic(client_of("messages", upstream)) as client:
            await client.beta.messages.create(model="m", max_tokens=9, messages=messages, tools=tools)
    assert [each.count(b"Use `index=products-eu`") for each in provider.bodies] == [1] * 4


async def test_what_goes_wrong_in_fleetlore_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    provider, fleet = Provider(Scripted(WRONG).choose), world.fleet()

    def fail(*args: Any, **options: Any) -> Any:
        raise RuntimeError("ours")

    monkeypatch.setattr(fleet.replica, "uses", fail)
    async with serving(provider.app) as upstream, fleet.session(GOAL, task=TASK):
        await run(AGENTS["messages"], wrap_anthropic(client_of("messages", upstream)), world)
    assert world.made == [WRONG, RIGHT] and b"fleet-memory" not in b"".join(provider.bodies)


def test_sub_agents_in_one_session_are_told_apart_and_calls_side_by_side_too(world: World) -> None:
    """Though their servers number the calls anew in each conversation."""
    calls, fleet = SessionCalls(), world.fleet()
    texts = {"call_0": "three chairs", "call_1": f"LookupError: {ERROR}"}
    made = [
        {"id": id, "type": "function", "function": {"name": "search", "arguments": f'{{"index":"{id}"}}'}}
        for id in texts
    ]
    results = [{"role": "tool", "tool_call_id": id, "content": text} for id, text in texts.items()]
    with fleet.session(GOAL, task=TASK):
        for turn in range(2):
            for prompt in ("find a chair", "look it up for the other"):
                messages: list[Any] = [{"role": "user", "content": prompt}]
                if turn:
                    messages += [{"role": "assistant", "content": None, "tool_calls": made}, *results]
                body = {"messages": messages, "tools": TOOLS}
                for _ in range(2):  # a request that is sent again
                    assert calls.told(CHAT_COMPLETIONS, body)[1] is not None
    outcomes = world.recorder.outcomes
    assert [(each[names.ARGUMENTS]["index"], names.ERROR_TYPE in each) for each in outcomes] == [
        ("call_0", False),
        ("call_1", True),
    ] * 2


def test_texts_of_a_request_keep_their_own_types(world: World) -> None:
    with world.fleet().session(GOAL, task=TASK):
        body = {"messages": [{"role": Role.USER, "content": GOAL}], "tools": TOOLS}
        told, _ = SessionCalls().told(CHAT_COMPLETIONS, body)
    assert told is not body and told["messages"][-1]["role"] is Role.USER
