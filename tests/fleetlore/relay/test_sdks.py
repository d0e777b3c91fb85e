"""Agents on the official SDKs, whose code has nothing of fleetlore in it but the address: the second one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetlore.wire import events as names
from tests.fleetlore.join.model_doors import through_gateway
from tests.fleetlore.join.sdk_agents import AGENTS, KEY
from tests.fleetlore.join.world import ERROR, GOAL, RIGHT, WRONG, Scripted, World
from tests.fleetlore.relay.provider import Provider


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def run(world: World, agent: str, model: Scripted) -> Provider:
    provider = Provider(model.choose)
    await through_gateway(agent, world, world.fleet(), provider)
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
