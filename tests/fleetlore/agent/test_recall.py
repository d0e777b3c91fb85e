"""`session.recall` on a real Milvus Lite server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fleetlore import BlockingFleet, Fleet, MemoryItem, StoreUnavailable
from fleetlore.advice.provenance import MARK
from fleetlore.kafka.emitter import Emitter
from fleetlore.recall.encoder import shared_encoder
from fleetlore.wire import events as names
from fleetlore.wire.events import Event
from fleetlore.wire.principals import session_key
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from streams.embedded.broker import free_port
from tests.build import memory_item
from tests.stored import row_of

NO_BROKER = "127.0.0.1:9"


def item(id: str, title: str, **fields: Any) -> MemoryItem:
    values = {"kind": "strategy", "title": title, "content": f"what to do about it: {id}", "support": 3, "agents": 3}
    return memory_item(id, **(values | fields))


ITEMS = [
    item("sql", "No such table: cars_data"),
    item("own", "No such table: cars_data", support=1, sessions=(session_key("agent", "s1", 2),)),
    item("once", "No such table: cars_data", support=1, sessions=(session_key("other", "s1"),)),
    item("shared", "No such table: cars_data", support=2, sessions=("s1", "s2")),
    item("disk", "No space left on device", tool="bash"),
]


@pytest.fixture
async def filled(milvus: str, tenant: str) -> AsyncIterator[str]:
    """Address of a store that holds the items."""
    store = MilvusStore(milvus, "", shared_encoder(), Metrics("test"))
    await store.open()
    await store.upsert("items", [row_of(tenant, each) for each in ITEMS])
    await store.close()
    yield milvus


def fleet_on(milvus: str, tenant: str, monkeypatch: pytest.MonkeyPatch, holdout_share: float = 0.0) -> Fleet:
    monkeypatch.setenv("FLEETLORE_MILVUS", milvus)
    return Fleet("agent", broker=NO_BROKER, tenant=tenant, holdout_share=holdout_share, ready_seconds=0)


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    events: list[Event] = []
    monkeypatch.setattr(Emitter, "emit", lambda _, event, **options: events.append(event) or True)
    return events


async def test_it_finds_what_others_know_and_never_what_the_session_alone_taught(
    filled: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fleet_on(filled, tenant, monkeypatch) as fleet, fleet.session("g", session_id="s1") as session:
        found = await session.recall("OperationalError: no such table: cars_data")
        assert set(found.ids[:3]) == {"sql", "once", "shared"}
        assert "own" not in found.ids
        assert found.items[0] in ITEMS and found.items[0].content in found.text
        assert (await session.recall("disk full, no space left on device", most=1)).ids == ("disk",)
        assert len((await session.recall("no such table", 2)).tips) == 2
        assert not await session.recall("")


async def test_what_it_gave_is_credited_and_no_evidence(
    filled: str, tenant: str, monkeypatch: pytest.MonkeyPatch, emitted: list[Event]
) -> None:
    async with fleet_on(filled, tenant, monkeypatch) as fleet, fleet.session("g", session_id="s1") as session:
        found = await session.recall("no space left on device", most=1)
        session.message("assistant", f"I remember: {found.items[0].content}")
        async with session.action("bash", {"command": "df"}):
            pass
        async with session.action("bash", {"command": "df"}):
            pass
    message, first, second = (each.data for each in emitted if each.kind in ("message", "outcome"))
    assert message[names.CONTENT] == f"I remember: {MARK}"
    assert first[names.ADVICE] == ["disk"]
    assert names.ADVICE not in second


async def test_a_share_of_it_is_withheld_and_its_place_stays_empty(
    filled: str, tenant: str, monkeypatch: pytest.MonkeyPatch, emitted: list[Event]
) -> None:
    async with fleet_on(filled, tenant, monkeypatch, 1.0) as fleet, fleet.session("g", session_id="s1") as session:
        assert not await session.recall("no space left on device", most=1)
        async with session.action("bash", {"command": "df"}):
            pass
    [outcome] = (each.data for each in emitted if each.kind == "outcome")
    assert outcome[names.WITHHELD] == ["disk"] and names.ADVICE not in outcome


async def test_a_store_that_is_away_stops_no_session(tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet_on(f"http://127.0.0.1:{free_port()}", tenant, monkeypatch) as fleet, fleet.session("g") as session:
        with pytest.raises(StoreUnavailable, match="Milvus at"):
            await session.recall("no such table", timeout_seconds=2.0)
        session.succeed()
    assert session.outcome == "success"


def test_without_asyncio(filled: str, tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLORE_MILVUS", filled)
    fleet = BlockingFleet("agent", broker=NO_BROKER, tenant=tenant, holdout_share=0.0, ready_seconds=0)
    with fleet, fleet.session("g") as session:
        assert session.recall("no space left on device", most=1).ids == ("disk",)
