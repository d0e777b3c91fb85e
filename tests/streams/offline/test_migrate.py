"""The lore in a folder of another release is rebuilt from the log, or from the digests of the judgments."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pymilvus import MilvusClient

from benchmarks.embedded_broker import EmbeddedBroker
from benchmarks.replay import Knowledge, read_knowledge
from fleetlore.config import Settings
from fleetlore.errors import ConfigError, StoreUnavailable
from fleetlore.recall.encoder import StaticEncoder, shared_encoder
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event
from sinks.collections import _SCHEMA, list_versions, make_live
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from sinks.topics import ensure_topics
from streams.embedded.stack import Stack
from streams.offline.backfill import run_backfill
from streams.offline.migrate import migrate
from streams.offline.republish import republish
from tests.streams.broker_pipeline import BrokerPipeline, Reference, Server
from tests.streams.log_pipeline import Story, flat

TENANT = "default"

pytestmark = pytest.mark.long


class _OtherEncoder(StaticEncoder):
    sha256 = "0" * 64


def story() -> list[Event]:
    made = Story(TENANT)
    events = flat(made.fleet())
    call: tuple[str, dict[str, Any], str, str | None] = ("bash", {"command": "make all"}, "done", None)
    long = made.session("long", *[call] * 400, agent="a9", outcome=None)
    spoken = Event("message", TENANT, "a9", "long", len(long), long[-1].time + 1, {ev.ROLE: "user", ev.CONTENT: "and?"})
    end = Event("session.ended", TENANT, "a9", "long", len(long) + 1, long[-1].time + 2, {ev.OUTCOME: "success"})
    return [*events, *long, spoken, end, made.feedback("bad-1", "success")]


def labels(known: Knowledge) -> list[tuple[str, str]]:
    return sorted((session, label) for session, label, _ in known.judgments)


class World:
    """A broker and a Milvus whose collections a test fills as another release would."""

    def __init__(self, broker: EmbeddedBroker, milvus: str) -> None:
        self.broker = broker
        self.settings = Settings(broker=broker.address, milvus=milvus, partitions=2, tenants=(TENANT,))
        self.store = MilvusStore(milvus, "", shared_encoder(), Metrics("test"))
        self.lines: list[str] = []

    async def send(self, events: Sequence[Event]) -> None:
        await ensure_topics(self.settings)
        pipeline = BrokerPipeline(Server(self.settings, "", self.store))
        await pipeline.start()
        await pipeline.send(events)
        await pipeline.stop()

    async def fill(self, events: Sequence[Event], schema: int = _SCHEMA) -> None:
        await self.send(events)
        with pytest.MonkeyPatch.context() as before:
            before.setattr("sinks.collections._SCHEMA", schema)
            await run_backfill(self.settings, "old")
            await self.store.on_client(lambda client: make_live(client, "old"))

    async def migrate(self) -> bool:
        return await migrate(self.settings, self.lines.append)

    async def knowledge(self) -> Knowledge:
        return await read_knowledge(self.store, TENANT)

    async def versions(self) -> dict[str, bool]:
        return await self.store.on_client(list_versions)


@pytest.fixture
async def world(own_broker: EmbeddedBroker, own_milvus: str) -> Any:
    own_broker.start()
    made = World(own_broker, own_milvus)
    yield made
    await made.store.close()


@pytest.mark.parametrize("other", ["schema", "patterns", "encoder", "words"])
async def test_lore_of_another_schema_fingerprint_or_encoder_is_made_again_from_the_log(
    world: World, reference: Reference, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    events = story()
    with monkeypatch.context() as before:
        if other == "patterns":
            before.setattr("sinks.collections.PATTERNS", "5")
        elif other != "schema":
            encoder = None if other == "words" else _OtherEncoder()
            before.setattr("sinks.milvus.installed_encoder", lambda: encoder)
        await world.fill(events, schema=3 if other == "schema" else _SCHEMA)
    with pytest.raises(ConfigError, match="was filled with"):
        await world.store.open()
    assert await world.migrate()
    await world.store.open()
    assert (await world.knowledge()).state_hash == (await reference(TENANT, events)).state_hash
    assert await republish(world.settings, world.store) == 0
    assert "old" not in await world.versions()
    assert f"from {len(events)} events" in world.lines[0] and "not on the log" not in str(world.lines)
    assert not await world.migrate()


async def test_sessions_whose_events_are_gone_come_back_from_their_digests(
    world: World, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, later = story(), [event for event in Story(TENANT).session("late", agent="a7")]
    await world.fill(events, schema=3)
    known = await world.knowledge()
    world.broker.stop()  # a broker in memory: its log ends with it
    world.broker.start()
    await world.send(later)
    assert await world.migrate()
    found, expected = await world.knowledge(), await reference(TENANT, [*events, *later])
    # The long session lacks the calls that its digest left out.
    assert found.items == expected.items and labels(found) == labels(expected)
    assert len(found.judgments) == len(known.judgments) + 1
    assert "9 sessions are not on the log" in str(world.lines) and "1 of them were long" in str(world.lines)
    assert await republish(world.settings, world.store) == 0


@pytest.mark.parametrize("dies", ["heed", "republish", "make_live"])
async def test_a_migration_that_was_killed_goes_on(
    world: World, reference: Reference, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    events = story()
    await world.fill(events, schema=3)

    def half(client: MilvusClient, name: str) -> None:
        client.alter_alias(f"patterns_{name}", "patterns")
        raise StoreUnavailable("killed")

    async def never(*_: object, **__: object) -> None:
        raise StoreUnavailable("killed")

    with monkeypatch.context() as killed:
        place = "streams.offline.backfill.Backfill.heed" if dies == "heed" else f"streams.offline.migrate.{dies}"
        killed.setattr(place, half if dies == "make_live" else never)
        with pytest.raises(StoreUnavailable, match="killed"):
            await world.migrate()
    assert (await world.versions())["old"], "nothing was deleted"
    assert await world.migrate()
    assert (await world.knowledge()).state_hash == (await reference(TENANT, events)).state_hash
    assert await republish(world.settings, world.store) == 0


@pytest.mark.parametrize("missing", [["patterns"], ["patterns", "judgments", "items"]])
async def test_a_collection_that_is_gone_is_made_again_from_the_log(
    world: World, reference: Reference, missing: list[str]
) -> None:
    events = story()
    await world.fill(events)
    for name in missing:
        await world.store.on_client(lambda client, name=name: client.drop_collection(f"{name}_old"))
    assert await world.migrate()
    assert (await world.knowledge()).state_hash == (await reference(TENANT, events)).state_hash


async def test_a_judgment_that_cannot_be_read_keeps_the_old_rows(world: World) -> None:
    with pytest.MonkeyPatch.context() as before:
        before.setattr("sinks.collections._SCHEMA", 3)
        await world.fill(story(), schema=3)
        row = {"id": f"{TENANT}/odd", "tenant": TENANT, "label": "success", "body": "{}", "state": '{"trajectory": 7}'}
        await world.store.upsert("judgments", [row])
    assert await world.migrate()
    assert "1 judged sessions cannot be read" in str(world.lines) and "backfill drop old" in world.lines[-1]
    assert (await world.versions())["old"] is False


async def test_up_brings_a_folder_of_another_schema_to_its_own(tmp_path: Path, reference: Reference) -> None:
    events = story()[:-1]
    async with Stack(tmp_path, trainer=False, partitions=2) as stack:
        pipeline = BrokerPipeline(Server(stack.settings, "", MilvusStore.from_settings(stack.settings)))
        await pipeline.start()
        await pipeline.take(events)
        before = await pipeline.knowledge()
        await pipeline.stop()
    for file in (tmp_path / "milvus" / "collections").glob("*/schema.json"):
        file.write_text(file.read_text().replace("schema 5", "schema 3"))
    async with (
        Stack(tmp_path, trainer=False, partitions=2) as stack,
        MilvusStore.from_settings(stack.settings) as store,
    ):
        await store.open()
        found = await read_knowledge(store, TENANT)
    assert found.items == before.items and labels(found) == labels(before)
