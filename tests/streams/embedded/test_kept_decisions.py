"""Decisions of operators outlive the broker in memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from msgspec.structs import replace

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.config import Settings
from fleetlore.errors import StackError
from fleetlore.kafka.read import read_to_end
from fleetlore.wire.lore import DECISIONS, HISTORY, Decision
from fleetlore.wire.topics import topic
from sinks.producer import BatchProducer
from sinks.topics import ensure_topics
from streams.embedded.kept_decisions import KeptDecisions
from streams.offline.operator_word import decide, read_decisions
from streams.stage.base import Outgoing


def decision(kind: str, id: str, on: bool, time: float = 1.0) -> Decision:
    return Decision(kind=kind, id=id, on=on, by="jo", why="wrong", time=time)


@contextlib.asynccontextmanager
async def following(orders: KeptDecisions, path: Path, mark: str, *topics: str) -> AsyncIterator[None]:
    """Follow the decisions until the file holds the mark of the last one in each of the topics."""
    task = asyncio.create_task(orders.follow())
    yield
    async with asyncio.timeout(120):
        while not path.exists() or not all(mark in str(orjson.loads(path.read_bytes()).get(each)) for each in topics):
            await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize(
    "value",
    [b"", b'{"fleetlore.default.decisions": {"i"', b"[]", b'{"fleetlore.default.decisions": [1]}', b'{"\xff": {}}'],
)
def test_a_broken_file_of_decisions_is_named(tmp_path: Path, value: bytes) -> None:
    path = tmp_path / "orders.json"
    path.write_bytes(value)
    with pytest.raises(StackError, match=f"{path}.*cannot be read .* move it away"):
        KeptDecisions(path, Settings())


@pytest.mark.long
async def test_decisions_are_there_again_after_a_restart(tmp_path: Path) -> None:
    path, tenants = tmp_path / "orders.json", ("one", "two")
    made = [decision("item", "i", True), decision("item", "i", False, 2.0), decision("agent", "a1", True)]
    with EmbeddedBroker() as broker:
        settings = Settings(broker=broker.address, tenants=tenants, fetch_wait_ms=50)
        await ensure_topics(settings)
        orders = KeptDecisions(path, settings)
        await orders.restore()  # there is nothing yet
        async with following(orders, path, "a1", topic("two", DECISIONS), topic("two", HISTORY)):
            for each in made:
                await decide(settings, "two", each)
    assert path.stat().st_mode & 0o777 == 0o600
    with EmbeddedBroker() as broker:
        settings = Settings(broker=broker.address, tenants=tenants, fetch_wait_ms=50)
        await ensure_topics(settings)
        await KeptDecisions(path, settings).restore()
        records = await read_to_end(settings.cluster, [topic(tenant, DECISIONS) for tenant in tenants], 120)
        assert await read_decisions(settings, "two", 30, HISTORY) == made, "and every one of the history"
    assert [(record.topic, Decision.from_json(record.value)) for record in records] == [
        (topic("two", "decisions"), each) for each in made[1:]
    ]


async def test_a_file_of_an_older_release_forgets_an_erased_person(tmp_path: Path) -> None:
    path, name = tmp_path / "orders.json", topic("one", HISTORY)
    made, other = decision("item", "i", True), decision("item", "j", True)
    texts = [each.to_json().decode() for each in (made, other)] + ['{"kind":"from tomorrow"}', "no json"]
    path.write_bytes(orjson.dumps({name: {text: text for text in texts}}))
    with EmbeddedBroker() as broker:
        settings = Settings(broker=broker.address, tenants=("one",), fetch_wait_ms=50)
        await ensure_topics(settings)
        orders = KeptDecisions(path, settings)
        await orders.restore()
        assert await read_decisions(settings, "one", 120, HISTORY) == [made, other]
        erased = replace(made, by="(erased)", why="")
        async with following(orders, path, "(erased)", name), BatchProducer(settings.cluster) as producer:
            await producer.deliver([Outgoing("one", HISTORY, "", erased.to_json())])
    kept = orjson.loads(path.read_bytes())[name]
    assert [Decision.from_json(text) for text in kept.values()] == [erased, other]
