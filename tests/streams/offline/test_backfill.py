"""A backfill beside a live worker, on a real broker and a real Milvus: filled, switched to, and written on."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from msgspec import structs
from pymilvus import MilvusClient

from benchmarks.embedded_broker import EmbeddedBroker
from benchmarks.replay import Knowledge, interleave, read_knowledge
from benchmarks.rollouts import logged, rollouts
from fleetlore.config import Settings
from fleetlore.errors import ConfigError, StoreUnavailable
from fleetlore.fingerprint import fingerprint
from fleetlore.fingerprint.normal_form import normal_form
from fleetlore.kafka.read import observer, partitions_of
from fleetlore.recall.encoder import shared_encoder
from fleetlore.wire.events import Event
from fleetlore.wire.lore import DECISIONS, Decision, DecisionKind, Hint, MemoryItem, Pattern
from fleetlore.wire.principals import session_key
from fleetlore.wire.stats import stable_hash
from fleetlore.wire.topics import NAMES, topic
from models.judge import SessionState
from models.memory.item_state import ItemState
from sinks.collections import COLLECTIONS, list_versions, make_live
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from sinks.producer import BatchProducer
from sinks.topics import ensure_topics
from streams.embedded.stack import Stack
from streams.offline import backfill
from streams.offline.backfill import _kept, losses, run_backfill, switch
from streams.offline.memory_pipeline import MemoryStore
from streams.offline.operator_word import wait_drained
from streams.offline.republish import republish
from streams.stage.base import Outgoing
from streams.stage.operators import ERASURES, Erasure
from streams.stages.s1_sessions import steps
from tests.build import call, trajectory
from tests.candidates import candidate
from tests.chaos.emitting import in_order
from tests.command import run_beside
from tests.rows import for_each
from tests.streams.broker_pipeline import LonePipeline, Reference
from tests.streams.log_pipeline import OTHER, Call, LogPipeline, flat

TENANT = "default"
DRAIN_SECONDS = 120.0
END_TIME = 1_760_000_000.0  # before the start of the clock that the reference runs by


def world_events(count: int) -> list[Event]:
    """Events of random agents in the tool world, agents interleaved."""
    return list(interleave(list(map(logged, rollouts(5, count))), TENANT, 0, END_TIME))


async def send(settings: Settings, events: Sequence[Event]) -> None:
    async with in_order(settings.broker, TENANT, Random()) as emit:
        await emit(list(events))


async def known(settings: Settings, version: str | None = None) -> Knowledge:
    async with MilvusStore(settings.milvus, "", shared_encoder(), Metrics("test"), version) as store:
        return await read_knowledge(store, TENANT)


async def command(*arguments: str) -> tuple[int, str]:
    """`fleetlore backfill …`: its exit code and output."""
    result = await run_beside("backfill", *arguments)
    return result.exit_code, result.output


@pytest.fixture
async def settings(broker: EmbeddedBroker, own_milvus: str) -> Settings:
    """On the shared broker, where other tenants do no harm: a new one would take seconds."""
    made = Settings(broker=broker.address, milvus=own_milvus, partitions=2, tenants=(TENANT,))
    await ensure_topics(made)
    return made


async def committed(settings: Settings, group: str) -> dict[int, int]:
    async with observer(settings.broker, group) as consumer:
        partitions = await partitions_of(consumer, topic(TENANT, "events"))
        return {each.partition: await consumer.committed(each) or 0 for each in partitions}


@pytest.mark.slow
async def test_a_version_takes_over_from_a_live_worker_and_nothing_is_lost(
    tmp_path: Path, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = world_events(900)
    first, second = len(events) // 3, 2 * len(events) // 3
    async with Stack(tmp_path, trainer=False) as stack:
        settings = stack.settings
        await send(settings, events[:first])
        report = await run_backfill(settings, "v2")
        # Run again it goes on, behind the first events of the sessions that are open.
        await send(settings, events[first : first + 100])
        again = await run_backfill(settings, "v2")
        assert report.events == first
        assert 100 <= again.events < first
        assert report.dead_letters == 0

        loop = asyncio.get_running_loop()

        async def worked_in_elsewhere() -> None:
            await send(settings, events[first + 100 : second])
            ended = {event.session for event in events[:second] if event.kind == "session.ended"}
            async with asyncio.timeout(DRAIN_SECONDS):
                while not ended <= {session for session, *_ in (await known(settings, "main")).judgments}:
                    await asyncio.sleep(0.2)

        def late_switch(client: MilvusClient, name: str) -> None:
            """Records since the version caught up go to the old collections first."""
            asyncio.run_coroutine_threadsafe(worked_in_elsewhere(), loop).result(DRAIN_SECONDS)
            make_live(client, name)

        monkeypatch.setattr("streams.offline.backfill.make_live", late_switch)
        await switch(settings, "v2")
        await send(settings, events[second:])
        await wait_drained(settings, TENANT, DRAIN_SECONDS)

        expected = await reference(TENANT, events)
        live = await known(settings)
        assert live.state_hash == expected.state_hash
        assert (await known(settings, "v2")).state_hash == expected.state_hash
        # The worker that has run all the while writes to the new collections and to those only.
        assert len((await known(settings, "main")).judgments) < len(live.judgments)
        # The live group was not rewound.
        assert all(offset > 0 for offset in (await committed(settings, settings.group)).values())
        # Agents get the contents of the rows.
        async with MilvusStore.from_settings(settings) as store:
            assert await republish(settings, store) == 0
        with pytest.raises(ConfigError, match="live"):
            await run_backfill(settings, "v2")


@pytest.mark.long
async def test_a_backfill_makes_the_same_lore_and_begins_anew_after_a_drop(
    settings: Settings, own_milvus: str, reference: Reference
) -> None:
    events = world_events(60)
    await send(settings, events)

    await run_backfill(settings, "whole")
    assert (await known(settings, "whole")).state_hash == (await reference(TENANT, events)).state_hash
    again = await run_backfill(settings, "whole")
    assert (again.events, again.event_seconds) == (0, 0.0)

    # A name that is used again begins anew: the commits of the dropped collections mean nothing.
    assert await command("drop", "whole", "--yes", "--milvus", own_milvus) == (0, "whole is dropped.\n")
    anew = await run_backfill(settings, "whole")
    assert anew.events >= len(events)


async def test_the_commands(
    settings: Settings, own_milvus: str, broker: EmbeddedBroker, tenant: str, make_topics: Any
) -> None:
    # Another tenant, whom no worker has served yet.
    await make_topics(broker.address, tenant, "events")
    async with in_order(broker.address, tenant, Random(1)) as emit:
        await emit([each._replace(tenant=tenant) for each in world_events(1)])
    async with MilvusStore.from_settings(settings) as store:
        await store.open()
    both = ["--broker", broker.address, "--milvus", own_milvus]

    code, output = await command("run", "v2", *both, "--json")
    assert code == 0, output
    assert orjson.loads(output.splitlines()[-1])["name"] == "v2"
    assert await command("switch", "v2", *both) == (0, "v2 is live.\n")
    async with observer(broker.address) as consumer:
        assert {topic(tenant, name) for name in NAMES} <= await consumer.topics()
    code, output = await command("list", "--milvus", own_milvus, "--json")
    versions = orjson.loads(output)
    assert [(each["name"], each["live"]) for each in versions] == [("main", False), ("v2", True)]
    rows = [each.name for each in COLLECTIONS]
    assert versions[0]["rows"] == dict.fromkeys(rows, 0) and list(versions[1]["rows"]) == rows
    code, output = await command("list", "--milvus", own_milvus)
    assert code == 0 and all(name.upper() in output.splitlines()[0] for name in rows)
    code, output = await command("drop", "main", "--milvus", own_milvus)
    assert (code, "--yes" in output) == (1, True)
    assert await command("drop", "main", "--yes", "--milvus", own_milvus) == (0, "main is dropped.\n")
    for wrong, said in (
        (("drop", "v2", "--yes", "--milvus", own_milvus), "live"),
        (("drop", "v2", "--milvus", own_milvus), "live"),
        (("drop", "v9", "--yes", "--milvus", own_milvus), "there is no collection version"),
        (("switch", "v3", *both), "no collection version"),
        (("run", "No Name", *both), "is not a valid collection version"),
    ):
        code, output = await command(*wrong)
        assert code == 1
        assert said in output


async def test_a_switch_that_would_lose_the_lore_is_refused(own_milvus: str, own_broker: EmbeddedBroker) -> None:
    """The state after a restart of an embedded stack: the rows exist, their events do not."""
    own_broker.start()
    settings = Settings(broker=own_broker.address, milvus=own_milvus, partitions=2, tenants=(TENANT,))
    await ensure_topics(settings)
    rows = [{"id": f"other/{number}", "tenant": "other", "body": "{}", "text": "a text"} for number in range(158)]
    async with MilvusStore.from_settings(settings) as store:
        await store.open()
        await store.upsert("items", rows)
    both = ["--broker", own_broker.address, "--milvus", own_milvus]

    assert (await command("run", "v2", *both))[0] == 0
    code, output = await command("switch", "v2", *both)
    assert code == 1
    assert "it has 0 items, the live one 158" in output and "--allow-loss" in output
    assert await fresh(own_milvus, "items") == "items_main"
    assert await command("switch", "v2", *both, "--allow-loss") == (0, "v2 is live.\n")
    assert await fresh(own_milvus, "items") == "items_v2"


def erasure(session: str = "", agent: str = "") -> Outgoing:
    gone = Erasure(time=1.0, sessions=(stable_hash(session_key("a1", session)),)) if session else None
    gone = gone or Erasure(time=1.0, agent=stable_hash(agent), before=time.time())
    return Outgoing("", ERASURES, gone.key, gone.to_json())


def distrust(agent: str, on: bool) -> Outgoing:
    decided = Decision(kind="agent", id=agent, on=on, by="jo", why="", time=2.0 if on else 3.0)
    return Outgoing("", DECISIONS, decided.key, decided.to_json())


class _Live(MemoryStore):
    async def has_collections(self) -> bool:
        return True


CACHES = (
    fingerprint.shaped_failure, fingerprint.shaped_call_id, fingerprint.tool_id, steps.recognise_call,
    steps.recognise_failure,
)  # fmt: skip
FIXED: Call = ("sql", {"query": "SELECT name FROM users"}, "7 rows", None)
MAIL: Call = ("sql", {"query": "SELECT mail FROM users"}, "", "no such column: 'mail'")
DENIED: Call = ("shop", {"query": "SELECT nam FROM users"}, "", "permission denied for column 'nam'")
ABSENT: Call = ("shop", {"query": "SELECT nam FROM users"}, "", "no such column: 'nam'")
ALLOWED: Call = ("shop", {"query": "SELECT name FROM users"}, "7 rows", None)


async def learned(version: str | None, monkeypatch: pytest.MonkeyPatch) -> tuple[_Live, dict[str, str]]:
    """Return what a version of the fingerprint makes of the same sessions, and its ids by words."""

    def otherwise(error_type: str, message: str) -> tuple[str, str, bool, str]:
        """Earlier versions told errors apart by fewer words, and quoted others."""
        error_class, _, transient, identity = normal_form(error_type, message)
        return error_class, f"of {message[:7]}", transient, identity[:2]

    pipeline = LogPipeline("t")
    with monkeypatch.context() as before:
        if version is not None:
            before.setattr(fingerprint, "VERSION", version)
            before.setattr(fingerprint, "normal_form", otherwise)
        for each in CACHES:
            each.cache_clear()
        for agent in "abc":
            for number, calls in enumerate([(OTHER, FIXED), (MAIL, MAIL), (DENIED, ALLOWED), (ABSENT, ALLOWED)]):
                way = pipeline.story.session(f"{agent}{number}", *calls, agent=agent, task=f"task-{agent}{number}")
                await pipeline.take(way)
    for each in CACHES:
        each.cache_clear()
    store = _Live()
    store.collections = pipeline.store.collections
    patterns = [Pattern.from_json(each) for each in store.bodies("patterns")]
    ids = {f"{each.level} {each.tool} {each.template}".strip(): each.id for each in patterns}
    return store, ids | {each.when: each.id for each in map(MemoryItem.from_json, store.bodies("items"))}


async def test_what_a_person_decided_holds_under_the_ids_that_another_version_gives_the_same_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (live, old), (store, new) = await learned("0", monkeypatch), await learned(None, monkeypatch)
    assert old.keys() & new.keys() and not {*old.values()} & {*new.values()}, "no template and no id is the same"
    absent, denied = (f"shop fails with: {call[3]}" for call in (ABSENT, DENIED))
    on_sql = f"sql fails with: {OTHER[3]}"

    def decided(kind: DecisionKind, id: str, *, on: bool = True, **fields: Any) -> Decision:
        return Decision(kind=kind, id=id, on=on, by="ann", why="", time=2.0, **fields)

    text = {"text": "Use name.", "author": "ann", "written": 1.0}
    correction = Hint(**text, replaces=old[absent], after=old["class shop of no such"], before=("nam",))
    made = [
        decided("pattern", old["class sql of no such"]),
        decided("pattern", old["call shop"]),
        decided("pattern", old["tool shop"]),
        decided("item", old[denied], on=False, wording="w"),
        decided("item", "gone"),
        decided("agent", "ann"),
        decided("hint", "h1", on=False, hint=correction),
        decided("hint", "h2", on=False, hint=Hint(**text, after="no such column")),
        # A later decision under the new id stays, as after a way back to an older version.
        decided("item", old[on_sql]),
        structs.replace(decided("item", new[on_sql]), time=9.0),
    ]
    kept: list[Decision] = []

    async def read(*_: object) -> list[Decision]:
        return made

    async def decide(settings: Settings, tenant: str, *given: Decision) -> None:
        kept.extend(given)

    monkeypatch.setattr(backfill, "read_decisions", read)
    monkeypatch.setattr(backfill, "decide", decide)
    filling = backfill.Backfill(Settings(milvus="nowhere"), "v2", ["t"])
    filling.store = store
    monkeypatch.setattr(MilvusStore, "from_settings", lambda *_: nullcontext(live))
    await filling.keep_decisions()
    columns = [new[f"class sql no such column: '{name}'"] for name in ("nam", "mail")]
    assert sorted(each.key for each in kept) == sorted(
        [f"pattern/{id}" for id in (*columns, new["call shop"], new["tool shop"])] + [f"item/{new[denied]}", "hint/h1"]
    )
    hint = next(each.hint for each in kept if each.kind == "hint")
    assert hint is not None and hint.before == ("nam",)
    assert (hint.replaces, hint.after) == (new[absent], new["class shop no such column: 'nam'"])
    assert {(each.by, each.time) for each in kept} == {("ann", 2.0)}
    assert [each.wording for each in kept if each.kind == "item"] == ["w"], "what was approved, and nothing else"
    live.collections, kept[:] = store.collections, []
    await filling.keep_decisions()
    assert not kept, "the same version has the same ids"


async def test_of_two_lessons_with_one_change_a_decision_holds_for_the_one_it_was_about() -> None:
    stores = []
    for version, titles in (("old", ("a", "b")), ("new", ("a", "b", "c"))):
        stores.append(store := _Live())
        state = SessionState(trajectory=trajectory(structs.replace(call("sql", error="x"), pattern=f"{version}-p")))
        await store.upsert("judgments", [{"id": "t/s", "tenant": "t", "body": "{}", "state": state.to_json().decode()}])
        for title in titles:
            made, id = ItemState(), f"{version}-{title}"
            made.merge(candidate(item_id=id, pattern=f"{version}-p", title=title, was=("id",), now=("oid",)))
            row = {"id": f"t/{id}", "tenant": "t", "body": "", "state": made.to_json().decode()}
            await store.upsert("items", [row])
    revoked = Decision(kind="item", id="old-b", on=True, by="ann", why="", time=1.0)
    assert [each.id for each in await _kept([revoked], *stores, "t")] == ["new-b"]


@pytest.mark.parametrize(
    ("was", "now", "after"),
    [(("",), ("new",), ""), (("p", "p"), ("p", "q"), "p")],
    ids=["a call that failed to no reader", "an id that most calls still have"],
)
async def test_a_hint_stays_where_it_was_written(was: tuple[str, ...], now: tuple[str, ...], after: str) -> None:
    stores = []
    for patterns in (was, now):
        stores.append(store := _Live())
        made = trajectory(*(structs.replace(call("sql", error="x"), pattern=each or None) for each in patterns))
        body = SessionState(trajectory=made).to_json().decode()
        await store.upsert("judgments", [{"id": "t/s", "tenant": "t", "body": "{}", "state": body}])
    hint = Hint(text="Look it up.", author="ann", written=1.0, start=not after, after=after)
    written = Decision(kind="hint", id="h1", on=False, by="ann", why="", time=1.0, hint=hint)
    assert await _kept([written], *stores, "t") == []


@pytest.mark.parametrize(
    ("words", "without"),
    [
        ([erasure(session="bad-1")], {"bad-1"}),
        ([erasure(agent="a1"), distrust("a2", on=True), distrust("a2", on=False)], {"good-1", "bad-1"}),
        ([distrust("a1", on=True)], {"good-1", "bad-1"}),
    ],
)
async def test_a_switch_heeds_what_operators_decided_since_the_version_was_filled(
    own_milvus: str, lone_pipeline: LonePipeline, reference: Reference, words: list[Outgoing], without: set[str]
) -> None:
    pipeline = await lone_pipeline(own_milvus)
    settings, tenant = pipeline.settings, pipeline.tenant
    live = MilvusStore(own_milvus, "", shared_encoder(), Metrics("test"))
    await live.open()
    fleet = pipeline.story.fleet()
    events = flat(fleet)
    assert without < {event.session for event in events}
    await pipeline.send(events)
    await run_backfill(settings, "v2")
    async with BatchProducer(settings.cluster) as producer:
        await producer.deliver([structs.replace(each, tenant=tenant) for each in words])
    await switch(settings, "v2")

    never = await reference(tenant, [event for event in events if event.session not in without])
    found = await read_knowledge(live, tenant)
    assert (found.patterns, found.items) == (never.patterns, never.items)
    if words[0].topic == ERASURES:
        assert found.state_hash == never.state_hash and not without & {session for session, *_ in found.judgments}
    assert await republish(settings, live) == 0
    await live.close()


@for_each(
    "new, live, first_offset, said",
    (0, 0, 0, ""),
    (5, 10, 0, ""),
    (4, 10, 0, "it has 4 items, the live one 10"),
    (0, 1, 0, "it has 0 items, the live one 1"),
    (10, 10, 7, "the oldest events are no longer on the broker"),
)
def test_fewer_than_half_of_the_rows_or_a_log_cut_off_is_a_loss(
    new: int, live: int, first_offset: int, said: str
) -> None:
    assert losses({"items": new}, {"items": live}, [0, first_offset]) == said


@pytest.mark.long
async def test_a_switch_that_died_half_way_is_ended_by_the_next(
    settings: Settings, own_milvus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = MilvusStore(own_milvus, "", shared_encoder(), Metrics("test"))
    await live.open()
    await run_backfill(settings, "v2")

    def die(client: MilvusClient, name: str) -> None:
        client.alter_alias(f"patterns_{name}", "patterns")
        raise StoreUnavailable("killed between two names")

    with monkeypatch.context() as patched:
        patched.setattr("streams.offline.backfill.make_live", die)
        with pytest.raises(StoreUnavailable):
            await switch(settings, "v2")
    with pytest.raises(ConfigError, match="live"):
        await run_backfill(settings, "v2")
    names = ("patterns", "judgments", "items")
    assert [await fresh(own_milvus, name) for name in names] == ["patterns_v2", "judgments_main", "items_main"]
    await switch(settings, "v2")
    assert [await fresh(own_milvus, name) for name in names] == ["patterns_v2", "judgments_v2", "items_v2"]
    assert await live.on_client(list_versions) == {"main": False, "v2": True}
    await live.close()


async def fresh(address: str, name: str) -> str:
    async with MilvusStore(address, "", shared_encoder(), Metrics("test")) as store:
        return await store.resolve(name)
