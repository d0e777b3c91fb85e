"""Erased sessions leave no trace in anything learned from them, and do not come back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlore.recall.search import row_id
from fleetlore.wire.principals import session_key
from fleetlore.wire.stats import stable_hash
from fleetlore.wire.topics import topic
from models.memory.item_state import SAMPLED_SESSIONS
from streams.offline.operator_word import States, contributed, requests, states_that
from streams.stage.base import Outgoing
from streams.stage.operators import Erasure, Forget
from tests.streams.log_pipeline import BASE_TIME, RIGHT, WRONG, LogPipeline, flat, learned


async def erase(pipeline: LogPipeline, *sessions: str) -> States:
    """Run the command's steps on the log in memory; return the stores that still know the sessions."""
    agents = {each[0].session: each[0].agent for each in pipeline.story.fleet()}
    keys = {session: session_key(agents.get(session, f"agent-of-{session}"), session) for session in sessions}
    named = {session: (stable_hash(key), stable_hash(f"{key}#1")) for session, key in keys.items()}
    for hashes in named.values():
        record = Erasure(time=BASE_TIME, sessions=hashes)
        await pipeline.producer.deliver([Outgoing(pipeline.tenant, "erasures", record.key, record.to_json())])
        pipeline.operators.erased.take(pipeline.tenant, record.to_json())
    await pipeline.drain()
    hashes = {each for found in named.values() for each in found}
    found = await states_that(lambda state: hashes & state.sessions, pipeline.store, pipeline.tenant)
    asked = requests(pipeline.tenant, found, Forget)
    for record in pipeline.log.read_all(topic(pipeline.tenant, "candidates")):
        asked += contributed(pipeline.tenant, record.value or b"", found.items, hashes)
    await pipeline.producer.deliver(asked)
    await pipeline.drain()
    ids = [row_id(pipeline.tenant, key) for key in keys.values()]
    await pipeline.store.delete("judgments", ids)
    return await states_that(lambda state: hashes & state.sessions, pipeline.store, pipeline.tenant)


async def bodies(pipeline: LogPipeline, collection: str) -> list[str]:
    """The pattern without its first and last times, whose sessions are not kept."""
    times = dict.fromkeys(("first_seen", "last_seen", "last_but_one"), 0.0) if collection == "patterns" else {}
    return sorted(repr({**each, **times}) for each in await pipeline.bodies(collection))


@settings(max_examples=8)
@given(data=st.data())
async def test_it_is_so_in_any_order_with_crashes_between(data: st.DataObject) -> None:
    fleet = LogPipeline().story.fleet()
    names = [each[0].session for each in fleet]
    gone = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True))
    pipeline = await learned(fleet)
    for session in gone:
        assert not await erase(pipeline, session)
        if data.draw(st.booleans()):
            pipeline.crash()
    never = await learned([each for each in fleet if each[0].session not in gone])
    assert await pipeline.knowledge() == await never.knowledge()
    for collection in ("patterns", "items", "judgments"):
        assert await bodies(pipeline, collection) == await bodies(never, collection), collection


async def test_what_is_erased_does_not_come_back_when_the_log_is_processed_again() -> None:
    fleet = LogPipeline().story.fleet()
    pipeline = await learned(fleet)
    await erase(pipeline, "bad-1")
    known = await pipeline.knowledge()
    await pipeline.send(flat(fleet))  # an agent that was away sends it again
    await pipeline.drain()
    assert await pipeline.knowledge() == known
    again = LogPipeline()
    again.log = again.producer.log = pipeline.log
    again.log._committed.clear()
    again.start()
    await again.drain()
    assert (await again.knowledge()).state_hash == known.state_hash


async def test_a_session_that_is_still_open_is_forgotten() -> None:
    pipeline = LogPipeline()
    await pipeline.take(pipeline.story.session("s", WRONG, outcome=None))
    assert await pipeline.bodies("patterns")
    assert not await erase(pipeline, "s")
    await pipeline.take(pipeline.story.session("s", WRONG, RIGHT)[2:])
    assert not await pipeline.bodies("patterns")
    assert not await pipeline.bodies("judgments")
    assert not pipeline.log.compacted(topic(pipeline.tenant, "patterns"))  # replicas forget it too


async def test_what_an_agent_did_before_its_erasure_is_dropped_and_what_it_does_after_is_kept() -> None:
    pipeline = LogPipeline()
    record = Erasure(time=BASE_TIME, agent=stable_hash("a1"), before=BASE_TIME + 50)
    pipeline.operators.erased.take(pipeline.tenant, record.to_json())
    await pipeline.send(pipeline.story.session("early", WRONG, RIGHT, agent="a1"))
    await pipeline.take(pipeline.story.session("late", WRONG, RIGHT, agent="a1", start=BASE_TIME + 60))
    assert [each["session"] for each in await pipeline.bodies("judgments")] == ["late"]


async def test_what_waits_for_the_first_event_of_its_session_is_dropped_too() -> None:
    pipeline = LogPipeline()
    first, *others = pipeline.story.session("s", WRONG, RIGHT, agent="a1")
    await pipeline.take(others)
    record = Erasure(time=BASE_TIME, agent=stable_hash("a1"), before=BASE_TIME + 50)
    pipeline.operators.erased.take(pipeline.tenant, record.to_json())
    await pipeline.take([first._replace(time=BASE_TIME + 60)])
    assert not await pipeline.bodies("patterns")


async def test_an_item_of_more_sessions_than_it_samples_keeps_its_support() -> None:
    pipeline = LogPipeline(batch_records=64)
    many = 3 * SAMPLED_SESSIONS
    for number in range(many):
        await pipeline.send(pipeline.story.session(f"s{number}", WRONG, RIGHT))
    await pipeline.drain()
    [before] = [each for each in await pipeline.bodies("items") if each["kind"] == "recovery"]
    assert before["support"] > 2 * SAMPLED_SESSIONS
    assert not await erase(pipeline, *(f"s{number}" for number in range(many // 4)))
    [after] = [each for each in await pipeline.bodies("items") if each["id"] == before["id"]]
    assert after["support"] == pytest.approx(before["support"] * 3 / 4, rel=0.1)
