"""Versions of the collections on a real Milvus Lite server."""

import asyncio
from typing import Any

import pytest

from fleetlore.errors import ConfigError
from fleetlore.recall.encoder import Encoder, shared_encoder
from fleetlore.recall.search import MADE_BY
from fleetlore.testing import FakeClock
from sinks.collections import (
    COLLECTIONS,
    check_collections,
    drop_version,
    list_versions,
    look_at_collections,
    make_live,
)
from sinks.metrics import Metrics
from sinks.milvus import REFRESH_SECONDS, RESOLVE_SECONDS, MilvusStore


def store_of(address: str, version: str | None = None, clock: FakeClock | None = None) -> MilvusStore:
    return MilvusStore(address, "", shared_encoder(), Metrics("test"), version, clock=clock)


def row(id: str) -> dict[str, Any]:
    return {"id": f"acme/{id}", "tenant": "acme", "body": "{}", "text": "a text"}


async def ids(store: MilvusStore) -> set[str]:
    return {each["id"] async for each in store.rows("items", "acme")}


async def test_a_version_is_filled_beside_the_live_one_and_takes_its_names(own_milvus: str) -> None:
    live, new = store_of(own_milvus), store_of(own_milvus, "v2")
    assert await live.open()
    assert await new.open()
    await live.upsert("items", [row("old")])
    await new.upsert("items", [row("new")])
    assert await ids(live) == {"acme/old"}
    assert await live.on_client(list_versions) == {"main": True, "v2": False}
    with pytest.raises(ConfigError, match="'main' is live"):
        await live.on_client(lambda client: drop_version(client, "main"))

    await live.on_client(lambda client: make_live(client, "v2"))
    assert await ids(live) == {"acme/new"}
    assert await live.on_client(list_versions) == {"main": False, "v2": True}
    with pytest.raises(ConfigError, match="'v2' is live"):
        await live.on_client(lambda client: drop_version(client, "v2"))

    await live.on_client(lambda client: drop_version(client, "main"))
    assert await live.on_client(list_versions) == {"v2": True}
    assert await ids(live) == {"acme/new"}
    assert not await live.open()  # everything is there: nothing called `main` is made anew
    assert await live.on_client(list_versions) == {"v2": True}
    await live.close()
    await new.close()


async def test_a_store_of_an_earlier_schema_is_refused_with_what_to_do(own_milvus: str) -> None:
    store = store_of(own_milvus)
    await store.open()

    def unmark(client: Any) -> None:
        client.drop_collection_properties("judgments_main", [MADE_BY])

    await store.on_client(unmark)
    with pytest.raises(ConfigError, match=r"'judgments' was filled with an earlier schema.*fleetlore backfill run"):
        await store.open()
    await store.close()


@pytest.mark.parametrize(
    ("first", "later", "target"),
    [(None, shared_encoder(), shared_encoder().sha256[:8]), (shared_encoder(), None, "words")],
)
async def test_a_store_of_words_and_one_of_vectors_are_different_stores(
    own_milvus: str, first: Encoder | None, later: Encoder | None, target: str
) -> None:
    async with (
        MilvusStore(own_milvus, "", first, Metrics("test")) as made,
        MilvusStore(own_milvus, "", later, Metrics("test")) as other,
    ):
        await made.open()
        await made.upsert("items", [row("1")])
        assert "schema" in await made.on_client(lambda client: check_collections(client, first))
        with pytest.raises(ConfigError, match=r"'items' was filled.*\[meaning\].*fleetlore backfill run"):
            await other.open()
        found = await other.on_client(lambda client: look_at_collections(client, later))
        assert found.other == ("items",) and found.target.endswith(f"_{target}")


async def test_a_writer_goes_on_where_it_read_until_it_looks_again(own_milvus: str) -> None:
    clock = FakeClock()
    writer, reader, new = store_of(own_milvus, clock=clock), store_of(own_milvus), store_of(own_milvus, "v2")
    await writer.open()
    await new.open()
    assert await writer.resolve("items") == "items_main"
    await writer.on_client(lambda client: make_live(client, "v2"))
    await writer.upsert("items", [row("late")])
    assert await ids(reader) == set()
    assert await writer.resolve("items") == "items_main"  # asked a moment ago
    clock.advance(RESOLVE_SECONDS)
    assert await writer.resolve("items") == "items_v2"
    await writer.upsert("items", [row("1")])
    assert set(await writer.get("items", ["acme/1", "acme/late"], "body")) == {"acme/1"}
    assert await ids(reader) == {"acme/1"}
    for each in (writer, reader, new):
        await each.close()


async def test_a_writer_does_not_wait_for_a_busy_milvus_to_learn_of_a_switch(
    own_milvus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    writer, new = store_of(own_milvus, clock=clock), store_of(own_milvus, "v2")
    await writer.open()
    await new.open()
    assert await writer.resolve("items") == "items_main"
    await writer.on_client(lambda client: make_live(client, "v2"))
    busy = asyncio.Event()
    answer = writer._ask

    async def late(collection: str) -> tuple[float, str]:
        await busy.wait()
        return await answer(collection)

    monkeypatch.setattr(writer, "_ask", late)
    clock.advance(REFRESH_SECONDS)
    assert await writer.resolve("items") == "items_main"  # asks meanwhile
    asked = writer._asked["items"]
    assert await writer.resolve("items") == "items_main" and writer._asked["items"] is asked
    busy.set()
    await asked
    await writer.upsert("items", [row("1")])  # it has not looked yet: what it read was of the old one
    assert await writer.resolve("items") == "items_v2"
    assert set(await writer.get("items", ["acme/1"], "body")) == set()
    for each in (writer, new):
        await each.close()


async def test_a_creator_that_died_between_collection_and_name_is_made_good(own_milvus: str) -> None:
    store = store_of(own_milvus)
    await store.open()

    def forget_names(client: Any) -> None:
        for collection in COLLECTIONS:
            client.drop_alias(collection.name)

    await store.upsert("items", [row("1")])
    await store.on_client(forget_names)
    assert not await store.open()
    assert await ids(store) == {"acme/1"}
    await store.close()
