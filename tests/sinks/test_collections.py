"""Versions of the collections on a real Milvus Lite server."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from fleetlore.errors import ConfigError, RowRefused, StoreUnavailable
from fleetlore.recall.encoder import Encoder, StaticEncoder, Vectors, shared_encoder
from fleetlore.recall.search import MADE_BY, row_id
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
from sinks.milvus import MAX_ROWS_PER_CALL, REFRESH_SECONDS, RESOLVE_SECONDS, MilvusStore
from streams.embedded.broker import free_port


def store_of(address: str, version: str | None = None, **options: Any) -> MilvusStore:
    return MilvusStore(address, "", shared_encoder(), Metrics("test"), version, **options)


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


@pytest.fixture(scope="module")
def encoder() -> StaticEncoder:
    return StaticEncoder()


@pytest.fixture
async def store(milvus: str, encoder: StaticEncoder) -> AsyncIterator[MilvusStore]:
    made = MilvusStore(milvus, "", encoder, Metrics("test"))
    await made.open()
    yield made
    await made.close()


def item(tenant: str, id: str, text: str = "a text", **columns: Any) -> dict[str, Any]:
    return {"id": row_id(tenant, id), "tenant": tenant, "body": f'{{"id":"{id}"}}', "text": text, **columns}


async def all_rows(store: MilvusStore, collection: str, tenant: str, *fields: str) -> dict[str, dict[str, Any]]:
    return {row["id"]: row async for row in store.rows(collection, tenant, *fields)}


@pytest.mark.parametrize("collection", [each.name for each in COLLECTIONS])
async def test_every_column_takes_any_text_of_any_length(store: MilvusStore, tenant: str, collection: str) -> None:
    [columns] = [each.columns for each in COLLECTIONS if each.name == collection]
    long = {name: "語" * 3000 for name, _ in columns}
    await store.upsert(collection, [item(tenant, "語" * 256, "", **long), item(tenant, "none", **dict.fromkeys(long))])
    rows = await all_rows(store, collection, tenant, *long)
    assert len(rows) == 2
    longest = rows[row_id(tenant, "語" * 256)]
    assert all(len(longest[name].encode()) <= length and longest[name].strip("語") == "" for name, length in columns)


async def test_more_rows_than_one_call_takes(store: MilvusStore, tenant: str) -> None:
    count = MAX_ROWS_PER_CALL + 7
    await store.upsert("patterns", [item(tenant, f"{n:05}") for n in range(count)])
    assert len(await all_rows(store, "patterns", tenant)) == count
    ids = [row_id(tenant, f"{n:05}") for n in range(count)]
    assert set(await store.get("patterns", ids, "body")) == set(ids)


async def test_a_row_that_nobody_searches_is_not_embedded(milvus: str, store: MilvusStore, tenant: str) -> None:
    class Counting(StaticEncoder):
        texts = 0

        def encode(self, texts: Sequence[str]) -> Vectors:
            self.texts += len(texts)
            return super().encode(texts)

    encoder = Counting()
    async with MilvusStore(milvus, "", encoder, Metrics("test")) as counting:
        for collection in ("judgments", "patterns"):
            await counting.upsert(collection, [item(tenant, "1")])
        assert encoder.texts == 0
        await counting.upsert("items", [item(tenant, "1")])
        assert encoder.texts == 1


async def test_who_opens_it_waits_until_it_is_there_and_no_longer_than_that(
    milvus: str, encoder: StaticEncoder
) -> None:
    tries: list[StoreUnavailable] = []
    store = MilvusStore(f"http://127.0.0.1:{free_port()}", "", encoder, Metrics("test"), timeout_seconds=0.5)

    def start(error: StoreUnavailable) -> None:
        tries.append(error)
        if len(tries) > 1:
            store.uri = milvus

    with pytest.raises(StoreUnavailable):
        await store.open_within(0.0)
    await store.open_within(60.0, start)
    assert len(tries) == 2
    await store.close()


async def test_a_store_that_is_away_is_unavailable(encoder: StaticEncoder) -> None:
    store = MilvusStore(f"http://127.0.0.1:{free_port()}", "", encoder, Metrics("test"), timeout_seconds=1.0)
    for attempt in (store.open(), store.upsert("items", [item("a", "1")]), store.get("items", ["a/1"], "body")):
        with pytest.raises(StoreUnavailable, match="Milvus"):
            await attempt
    await store.close()


async def test_what_was_written_is_counted(
    milvus: str, encoder: StaticEncoder, store: MilvusStore, tenant: str
) -> None:
    metrics = Metrics("test")
    rows = [item(tenant, "1"), item(tenant, "2", state="old"), item(tenant, "2", state="new")]
    async with MilvusStore(milvus, "", encoder, metrics) as counting:
        await counting.upsert("items", rows)
    found = await all_rows(store, "items", tenant, "state")
    assert {id: row["state"] for id, row in found.items()} == {row_id(tenant, "1"): "", row_id(tenant, "2"): "new"}
    assert metrics.registry.get_sample_value("fleetlore_sink_rows_total", {"collection": "items"}) == 2
    assert metrics.registry.get_sample_value("fleetlore_sink_duration_seconds_count", {"collection": "items"}) == 1


async def test_rows_that_milvus_never_takes_do_not_stop_the_others(
    milvus: str, encoder: StaticEncoder, store: MilvusStore, tenant: str
) -> None:
    bad = {3, 4, 17}
    long, wrong_character = "x" * 65_536, "half of a pair \ud800"
    rows = [item(tenant, f"{n:02}", state=f"state {n}") for n in range(20)]
    rows[3]["body"] = rows[4]["body"] = long
    rows[17]["body"] = wrong_character
    metrics = Metrics("test")
    async with MilvusStore(milvus, "", encoder, metrics) as counting:
        with pytest.raises(RowRefused, match="body") as refused:
            await counting.upsert("items", rows)
    assert refused.value.collection == "items"
    assert refused.value.ids == tuple(row_id(tenant, f"{n:02}") for n in sorted(bad))
    assert long not in refused.value.detail
    assert set(await all_rows(store, "items", tenant)) == {row_id(tenant, f"{n:02}") for n in range(20) if n not in bad}
    assert metrics.registry.get_sample_value("fleetlore_sink_rows_total", {"collection": "items"}) == 17


async def test_what_the_server_refuses_is_told_from_an_outage(milvus: str, store: MilvusStore, tenant: str) -> None:
    class Shorter(StaticEncoder):
        def encode(self, texts: Sequence[str]) -> Vectors:
            return super().encode(texts)[:, :5]

    async with MilvusStore(milvus, "", Shorter(), Metrics("test")) as wrong:
        with pytest.raises(RowRefused, match=f"expected dim {Shorter().dimensions}, got 5") as refused:
            await wrong.upsert("items", [item(tenant, str(n)) for n in range(3)])
    assert len(refused.value.ids) == 3
    assert await all_rows(store, "items", tenant) == {}


async def test_a_collection_that_is_missing_is_an_outage(milvus: str, encoder: StaticEncoder, tenant: str) -> None:
    async with MilvusStore(milvus, "", encoder, Metrics("test"), version="nowhere") as nowhere:
        with pytest.raises(StoreUnavailable, match="does not exist"):
            await nowhere.upsert("items", [item(tenant, "1")])


async def test_a_collection_that_a_restart_released_is_loaded_for_the_next_attempt(
    milvus: str, encoder: StaticEncoder, tenant: str
) -> None:
    store = MilvusStore(milvus, "", encoder, Metrics("test"), version="released")
    await store.open()
    await store.upsert("items", [item(tenant, "1")])
    await store.on_client(lambda client: client.release_collection("items_released"))
    with pytest.raises(StoreUnavailable):
        await store.get("items", [row_id(tenant, "1")], "body")
    assert await store.get("items", [row_id(tenant, "1")], "body")
    await store.close()


async def test_a_purge_leaves_no_byte_of_what_was_deleted_or_replaced(
    own_milvus: str, encoder: StaticEncoder, milvus_folder: Path
) -> None:
    async with MilvusStore(own_milvus, "", encoder, Metrics("test")) as store:
        await store.open()
        kept = [item("t", f"kept-{n}", text=f"kept text {n}", state="kept state") for n in range(20)]
        await store.upsert("items", [*kept, item("t", "gone-id", text="gone-text", state="gone-state")])
        await store.upsert("items", [item("t", "kept-0", text="gone-text of before", state="gone-state of before")])
        await store.purge()  # in the files now, where a compaction has to find it
        await store.upsert("items", kept[:1])
        await store.delete("items", [row_id("t", "gone-id")])
        assert {"gone-id", "gone-text", "gone-state"} <= _found_in(milvus_folder)
        await store.purge()
        assert not _found_in(milvus_folder)
        left = await all_rows(store, "items", "t", "state")
        assert left == {row["id"]: {"id": row["id"], "state": "kept state"} for row in kept}
        await store.upsert("items", [item("t", "gone-id", state="new")])
        assert len(await all_rows(store, "items", "t")) == len(kept) + 1


def _found_in(folder: Path) -> set[str]:
    """Return the words that any file below a folder holds, plainly or in a Parquet file's pages."""
    found: set[str] = set()
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            if path.suffix == ".parquet":
                data += repr(parquet.read_table(path).to_pylist()).encode()
            found |= {word for word in ("gone-id", "gone-text", "gone-state") if word.encode() in data}
    return found
