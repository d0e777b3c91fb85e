"""Learn from logged sessions in memory, and ask for advice as their agents would have."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.cloudevents import encode_record
from fleetlore.errors import RowRefused, StoreUnavailable
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire import events as ev
from fleetlore.wire.events import BATCH_HEADERS, Event
from fleetlore.wire.topics import topic
from streams.offline.memory_pipeline import OfflineRun, call_log, hear, run_logs
from streams.stage.base import Record
from streams.stage.merging_stage import StateCache
from streams.stages.pipeline import Chain
from tests.streams.broker_pipeline import Reference
from tests.streams.log_pipeline import LogPipeline

TENANT = "acme"
WRONG, RIGHT = ("SELECT nam FROM users", "no such column: 'nam'"), ("SELECT name FROM users", None)
GONE = "Table 'shop.cars' doesn't exist"


def batches(events: Sequence[Event], size: int) -> list[list[Record]]:
    """Records of one event, `size` in a batch."""
    records = [
        Record(topic(TENANT, name), 0, offset, None, encode_record([event]), dict(BATCH_HEADERS))
        for offset, event in enumerate(events)
        for name in ["feedback" if event.kind == "feedback" else "events"]
    ]
    return [records[start : start + size] for start in range(0, len(records), size)]


@pytest.mark.parametrize("size", [1, 5, 1000])
async def test_the_chain_comes_to_know_what_the_workers_do(reference: Reference, size: int) -> None:
    world = LogPipeline(TENANT)
    events = world.story.interleaved(world.story.fleet(), seed=3)
    events.append(world.story.feedback("unsure", "failure"))
    chain = Chain(world.stages, world.store)
    processed = 0
    for batch in batches(events, size):
        processed += (await chain.run(batch)).processed
    await chain.settle()
    assert processed == len(events)
    expected = await reference(TENANT, events)
    assert expected.state_hash
    assert (await world.knowledge()) == expected
    assert world.log.read_all(topic(TENANT, "judgments")) == []


async def test_an_outage_shows_before_anything_is_built_on_it() -> None:
    async def away(collection: str, rows: Sequence[dict[str, Any]]) -> None:
        raise StoreUnavailable("away")

    world = LogPipeline(TENANT)
    world.store.upsert = away
    chain = Chain(world.stages, world.store)
    first, second = (batches(world.story.session(name), 100)[0] for name in ("s1", "s2"))
    await chain.run(first)
    with pytest.raises(StoreUnavailable):
        await chain.run(second)


async def test_a_row_that_is_refused_does_not_stop_the_others() -> None:
    world = LogPipeline(TENANT)
    real_upsert = world.store.upsert

    async def refuse_judgments(collection: str, rows: Sequence[dict[str, Any]]) -> None:
        if collection == "judgments":
            raise RowRefused(collection, (rows[0]["id"],), "too long")
        await real_upsert(collection, rows)

    world.store.upsert = refuse_judgments
    chain = Chain(world.stages, world.store)
    for batch in batches(world.story.interleaved(world.story.fleet(), seed=1), 7):
        await chain.run(batch)
    await chain.settle()
    knowledge = await world.knowledge()
    assert not knowledge.judgments
    assert knowledge.patterns


async def test_states_of_another_collection_are_forgotten() -> None:
    class Switching:
        name = "items_main"

        async def resolve(self, collection: str) -> str:
            return self.name

        async def get(self, collection: str, ids: Sequence[str], *fields: str) -> dict[str, dict[str, Any]]:
            return {id: {"from": self.name, "state": "{}"} for id in ids if id == "acme/both"}

        async def upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None: ...

    store = Switching()
    states: StateCache[str] = StateCache(store, "items", lambda row: row["from"], len, 1_000)
    keys = [("acme", "both"), ("acme", "written")]
    assert await states.load(keys) == {("acme", "both"): "items_main"}
    states.remember("acme", "written", "since")
    assert await states.load(keys) == {("acme", "both"): "items_main", ("acme", "written"): "since"}
    store.name = "items_v2"
    assert await states.load(keys) == {("acme", "both"): "items_v2"}


def logged(session: str, agent: str, *calls: tuple[str, str | None], failed: bool = False) -> LoggedSession:
    made = LoggedSession(
        session, agent, "task-1", "count the users", "failure" if failed else "success", float(not failed)
    )
    for arguments, error in calls:
        data: dict[str, object] = {ev.TOOL: "sql", ev.ARGUMENTS: arguments, ev.RESULT: None if error else "7 rows"}
        made.events.append(("outcome", data | ({ev.ERROR_MESSAGE: error} if error else {})))
    return made


SESSIONS = [
    logged("s1", "ann", WRONG, RIGHT),
    logged("s2", "ben", WRONG, RIGHT),
    logged("s3", "eve", WRONG, WRONG, failed=True),
]


def test_all_stages_have_worked() -> None:
    known = asyncio.run(run_logs(SESSIONS, seed=0, learn=True))
    assert known == asyncio.run(run_logs(SESSIONS[::-1], seed=0, learn=True)), "in any order"
    endings = {each.session: each.ending for each in known.trajectories}
    assert endings == {"s1": "success", "s2": "success", "s3": "failure"}
    classes = [each for each in known.patterns if each.level == "class"]
    assert [(each.tool, each.sessions, each.agents) for each in classes] == [("sql", 3, 3)]
    assert any(item.kind == "recovery" and item.support == 2 for item in known.items)


def test_nothing_is_learned_from_what_is_only_read() -> None:
    read = asyncio.run(run_logs(SESSIONS, seed=0, learn=False, started=5e8))
    assert len(read.trajectories) == 3
    assert not read.patterns and not read.items
    assert min(each.started for each in read.trajectories) > 5e8


def session(agent: str, task: str, *calls: tuple[str, str | None]) -> LoggedSession:
    logged = LoggedSession(f"{agent}/{task}", agent, task, f"count {task}", "failure", 0.0, source="shop")
    logged.events.append(("message", {ev.ROLE: "user", ev.CONTENT: "please"}))
    for text, error in calls:
        data: dict[str, Any] = {ev.TOOL: "sql", ev.ARGUMENTS: text, ev.RESULT: None if error else "12"}
        logged.events.append(("outcome", data | ({ev.ERROR_MESSAGE: error} if error else {})))
    return logged


PAST = [session(agent, "t", ("select 1 from cars", GONE), ("select 1 from car_makers", None)) for agent in "abcd"]
NEW = [session(agent, "t", ("select 2 from cars", GONE), ("select 3 from car_makers", None)) for agent in "nop"]


def learned() -> OfflineRun:
    run = asyncio.run(run_logs(PAST, seed=0, learn=True))
    return replace(run, calls=b"")


def test_an_agent_hears_before_each_call_and_after_each_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    # The draw depends on the item's id, which each version of patterns changes.
    monkeypatch.setattr("fleetlore.advice.advice.withheld", lambda session, *_: session == NEW[1].session)
    one, withheld, other = asyncio.run(hear(learned(), NEW))
    assert len(one.before) == 2 and set(one.after) == {0}
    assert one.log == call_log(NEW[0]) and one.log.calls[0].before == "please"
    assert one.before[0].named is not None and "Use `car_makers` instead of `cars`" in one.before[0].text
    assert not any(each.text for each in (*withheld.before, *withheld.after.values()))
    # A test session teaches nothing: the next one gets the same warning.
    assert [each.named for each in other.before] == [each.named for each in one.before]


def test_a_fleet_that_knows_nothing_says_nothing() -> None:
    (said,) = asyncio.run(hear(OfflineRun([], [], [], b"", 0.0), NEW[:1]))
    assert said.characters == 0 and not any(each.named for each in said.before)
