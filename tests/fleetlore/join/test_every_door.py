"""One agent meets a failure; the next one, whose model does what it reads, through every door: what it makes of it."""

import shutil
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import pytest

from fleetlore import Fleet
from fleetlore.wire import events as names
from tests.fleetlore.join import model_doors, typescript_doors
from tests.fleetlore.join.sdk_agents import AGENTS
from tests.fleetlore.join.world import ERROR, GOAL, RIGHT, WRONG, Door, Scripted, World


def door_of(folder: str, name: str) -> Door:
    """A door whose module is imported when it is used: all frameworks together take seconds."""

    async def door(world: World, fleet: Fleet, model: Scripted) -> None:
        await getattr(import_module(f"tests.fleetlore.join.{folder}"), name)(world, fleet, model)

    return door


FRAMEWORKS = ("own_code", "langchain", "openai_agents", "pydantic_ai", "claude")
MCP = ("mcp_over_http", "mcp_over_http_of_old", "mcp_over_stdio")
# They see a call before it is made, and may answer it in its place.
AT_THE_CALL: dict[str, Door] = {name: door_of("framework_doors", name) for name in FRAMEWORKS + MCP} | {
    "claude_code": door_of("framework_doors", "claude_code"),
    "codex": door_of("framework_doors", "codex"),
    "typescript": typescript_doors.example("client"),
}
# They see what a model is sent, and a call with its result.
AT_THE_MODEL: dict[str, Door] = {
    **{f"gateway, {agent}": model_doors.gateway(agent) for agent in AGENTS},
    **{f"wrapped client, {agent}": model_doors.wrapped(agent) for agent in AGENTS},
    **{f"wrapped blocking client, {agent}": model_doors.wrapped(agent, blocking=True) for agent in AGENTS},
    "litellm": model_doors.litellm,
    "typescript, openai": typescript_doors.example("openai"),
    "typescript, vercel-ai": typescript_doors.example("vercel-ai"),
}
DOORS = AT_THE_CALL | AT_THE_MODEL
# Two programs take ten seconds and two for their start and end, and LiteLLM takes as long to import.
SLOW: dict[str, Any] = dict.fromkeys(("claude_code", "mcp_over_stdio", "litellm"), pytest.mark.long)
# A blocking client differs only in how an answer is read: whole, or as a stream of either SDK.
BLOCKING = ("chat", "responses stored streamed", "messages streamed")
SLOW |= {f"wrapped blocking client, {agent}": pytest.mark.long for agent in AGENTS if agent not in BLOCKING}
_NO_CODEX = pytest.mark.skipif(shutil.which("codex") is None, reason="Codex is not there: npm install -g @openai/codex")
SLOW["codex"] = (pytest.mark.long, _NO_CODEX)
SLOW |= {each: typescript_doors.MARKS for each in DOORS if each.startswith("typescript")}


def through(doors: Iterable[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("door", [pytest.param(each, marks=SLOW.get(each, ())) for each in doors])


LEARNED: dict[str, World] = {}


@pytest.fixture
async def world(door: str, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world in which one agent met the failure through a door, and got past it: the same one for each test."""
    if door not in LEARNED:
        world = World(tmp_path_factory.mktemp("world"))
        await first_agent(world, door)
        LEARNED[door] = world
    return LEARNED[door]


async def first_agent(world: World, door: str) -> None:
    await DOORS[door](world, world.fleet(), Scripted(WRONG))
    assert world.made == [WRONG, RIGHT], "nothing was known, so nothing was said"
    failed, worked = world.recorder.outcomes
    assert failed[names.ARGUMENTS] == {"index": WRONG} and ERROR in failed[names.ERROR_MESSAGE]
    assert worked[names.ARGUMENTS] == {"index": RIGHT} and names.ERROR_TYPE not in worked
    begin, *_, end = world.recorder.events
    assert (begin.kind, begin.data[names.GOAL], end.kind) == ("session.started", GOAL, "session.ended")
    await world.learn()


@through(AT_THE_CALL)
async def test_a_known_failure_is_not_repeated(world: World, door: str) -> None:
    await DOORS[door](world, world.fleet(), Scripted())
    assert WRONG not in world.made and world.made[-1:] == [RIGHT]


@through(DOORS)
async def test_the_way_out_is_read_before_the_first_choice(world: World, door: str) -> None:
    model = Scripted()
    await DOORS[door](world, world.fleet(hold="off"), model)
    assert model.chosen == world.made == [RIGHT]


@through(AT_THE_CALL)
async def test_a_call_is_held_once_and_made_when_it_is_sent_again(world: World, door: str) -> None:
    model = Scripted(WRONG, WRONG, obeys=False)
    await DOORS[door](world, world.fleet(), model)
    assert model.chosen == [WRONG, WRONG, RIGHT] and world.made == [WRONG, RIGHT]
    assert world.recorder.kinds.count("outcome") == 2, "what was not made was recorded"


@through(["langchain", "openai_agents", "pydantic_ai", *AT_THE_MODEL])
async def test_what_was_sent_is_a_prefix_of_what_is_sent_next(world: World, door: str) -> None:
    """A provider reads the cached part of a prompt again at every turn, though more becomes known meanwhile."""
    model = Scripted(WRONG, WRONG, obeys=False)
    await DOORS[door](world, world.fleet(), model)
    assert len(model.sent) == 4
    for before, after in zip(model.sent, model.sent[1:], strict=False):
        assert after[: len(before)] == before
    assert "fleet-memory" in "".join(model.sent[0][:2])
