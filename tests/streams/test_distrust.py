"""The word of a distrusted agent counts nowhere, as if it had said nothing, until the decision is undone."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlore.wire.lore import DECISIONS, Decision
from fleetlore.wire.principals import session_key
from fleetlore.wire.topics import topic
from streams.offline.operator_word import contributed, known_to, requests
from streams.stage.base import Outgoing
from streams.stage.operators import Reconsider
from tests.streams.log_pipeline import BASE_TIME, RIGHT, WRONG, LogPipeline, learned

TIMES = ("first_seen", "last_seen", "last_but_one")
EVIL = ("bash", {"command": "pip nunpy numpy"}, "Successfully installed", None)
OWN = ("sql", {"query": "SELECT * FROM ledger"}, "", "ERROR: no such table: ledger")


def decision(agent: str, on: bool, number: int = 0) -> Decision:
    return Decision(kind="agent", id=agent, on=on, by="operator", why="it lies", time=BASE_TIME + number)


async def decide(pipeline: LogPipeline, decided: Decision) -> None:
    """Run the command's steps on the log in memory."""
    tenant = pipeline.tenant
    await pipeline.producer.deliver([Outgoing(tenant, DECISIONS, decided.key, decided.to_json())])
    for _ in range(2):
        known = await known_to(pipeline.store, tenant, decided.id)
        asked = requests(tenant, known, lambda id, _: Reconsider(id, decided))
        for record in pipeline.log.read_all(topic(tenant, "candidates")):
            asked += contributed(tenant, record.value or b"", known.items, ())
        await pipeline.producer.deliver(asked)
        await pipeline.drain()


async def told(pipeline: LogPipeline) -> tuple[list[str], list[str]]:
    """The lore of Milvus and agents without the first and last times of patterns, whose sessions are not kept."""
    rows = [
        repr({**each, **dict.fromkeys(TIMES, 0.0)} if name == "patterns" else each)
        for name in ("patterns", "items")
        for each in await pipeline.bodies(name)
    ]
    keys = [key for name in ("patterns", "items") for key in pipeline.log.compacted(topic(pipeline.tenant, name))]
    return sorted(rows), sorted(keys)


async def test_what_only_it_taught_is_gone_and_comes_back_when_it_is_trusted_again() -> None:
    story = LogPipeline().story
    fleet = [
        *(story.session(f"good-{n}", WRONG, RIGHT, agent=f"a{n}") for n in range(3)),
        *(story.session(f"evil-{n}", WRONG, EVIL, OWN, agent="mallory") for n in range(5)),
    ]
    pipeline = await learned(fleet)
    before = await told(pipeline)
    never = await learned([each for each in fleet if each[0].agent != "mallory"])
    assert set((await told(never))[1]) < set(before[1])
    assert "nunpy" in str(before) and "ledger" in str(before)
    await decide(pipeline, decision("mallory", on=True))
    assert await told(pipeline) == await told(never)
    # Its later events count for as little, whether the worker gets the decision live or reads it at start.
    pipeline.crash()
    late = story.session("evil-9", WRONG, EVIL, OWN, agent="mallory", start=BASE_TIME + 500)
    await pipeline.take(late)
    assert await told(pipeline) == await told(never)
    await decide(pipeline, decision("mallory", on=False, number=1))
    assert await told(pipeline) == await told(await learned([*fleet, late]))


async def test_places_among_the_examples_that_it_took_are_given_to_others() -> None:
    story = LogPipeline().story
    # All three agents have a place.
    fleet = [
        *(story.session(f"good-{n}", WRONG, RIGHT, agent=f"a{n % 2}") for n in range(4)),
        *(story.session(f"evil-{n}", WRONG, RIGHT, agent="mallory") for n in range(9)),
    ]
    pipeline = await learned(fleet)
    never = await learned(fleet[:4])
    evil = [session_key("mallory", f"evil-{n}") for n in range(9)]
    assert any(key in each for each in (await told(pipeline))[0] for key in evil)
    await decide(pipeline, decision("mallory", on=True))
    assert await told(pipeline) == await told(never)
    assert (await told(never))[1]


@settings(max_examples=8)
@given(data=st.data())
async def test_whose_word_counts_follows_from_the_newest_decisions(data: st.DataObject) -> None:
    fleet = LogPipeline().story.fleet()
    pipeline, trusted = await learned(fleet), {"a1", "a2", "a3"}
    steps = data.draw(st.lists(st.tuples(st.sampled_from(sorted(trusted)), st.booleans()), min_size=1, max_size=4))
    for number, (agent, on) in enumerate(steps):
        await decide(pipeline, decision(agent, on, number))
        trusted = trusted - {agent} if on else trusted | {agent}
        if data.draw(st.booleans()):
            pipeline.crash()
    never = await learned([each for each in fleet if each[0].agent in trusted])
    assert await told(pipeline) == await told(never)
