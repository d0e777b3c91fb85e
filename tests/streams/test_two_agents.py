"""Two agents under one session id have a session each, in whatever order they come, restarts included."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlore.wire import events as ev
from fleetlore.wire.events import Event
from models.memory.item_state import ItemState
from tests.streams.log_pipeline import BASE_TIME, OTHER, RIGHT, WRONG, LogPipeline

State = tuple[str, list[tuple[str, str, int]], dict[str, list[str]]]


async def state_after(events: list[Event], restarts: list[int]) -> State:
    """Hash of the lore, the judgments, and the supporters of each item."""
    pipeline = LogPipeline()
    for place, event in enumerate(events):
        await pipeline.send([event])
        if place in restarts:
            await pipeline.drain()
            pipeline.crash()
    await pipeline.drain()
    for _ in range(2):
        pipeline.clock.advance(120)
        await pipeline.drain()
    knowledge = await pipeline.knowledge()
    states = {
        row["id"]: ItemState.from_json(row["state"].encode())
        async for row in pipeline.store.rows("items", "acme", "state")
    }
    sides = {
        id: sorted(str(each.side) for each in state.contributors.kept.values() if each.side != "withdrawn")
        for id, state in states.items()
    }
    return knowledge.state_hash, sorted(knowledge.judgments), {id: found for id, found in sides.items() if found}


def fleet() -> tuple[list[Event], list[Event], list[Event]]:
    """Alice began first; Bob's session is the longer one; Carl backs what either learned."""
    story = LogPipeline().story
    alice = story.session("x", WRONG, RIGHT, agent="alice")
    bob = story.session("x", WRONG, WRONG, OTHER, outcome="failure", agent="bob", start=BASE_TIME + 2)
    carl = story.session("y", WRONG, RIGHT, agent="carl", start=BASE_TIME + 5)
    for session, reward in ((alice, 1.0), (bob, 0.0), (carl, 1.0)):
        session[-1].data[ev.REWARD] = reward  # which is sure, so that each teaches
    return alice, bob, carl


@settings(max_examples=settings.default.max_examples // 2)
@given(turns=st.permutations([0] * 4 + [1] * 5), restarts=st.lists(st.integers(0, 9), max_size=2))
def test_both_count_in_every_order(turns: list[int], restarts: list[int]) -> None:
    alice, bob, carl = fleet()
    waiting = [list(alice), list(bob)]
    mixed = [waiting[turn].pop(0) for turn in turns] + carl
    state = asyncio.run(state_after(mixed, restarts))
    assert state[1] == [("x", "failure", 5), ("x", "success", 4), ("y", "success", 4)]
    assert state == asyncio.run(state_after([*alice, *bob, *carl], []))
