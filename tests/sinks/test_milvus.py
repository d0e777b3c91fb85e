"""The store on a real Milvus Lite server."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from fleetlore.errors import ConfigError, RowRefused, StoreUnavailable
from fleetlore.recall.encoder import StaticEncoder, Vectors
from fleetlore.recall.search import row_id
from sinks.collections import COLLECTIONS
from sinks.metrics import Metrics
from sinks.milvus import MAX_ROWS_PER_CALL, MilvusStore
from streams.embedded.broker import free_port


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


async def test_writing_twice_changes_nothing(store: MilvusStore, tenant: str) -> None:
    rows = [item(tenant, str(n), state=f"state {n}") for n in range(5)]
    await store.upsert("items", rows)
    first = await all_rows(store, "items", tenant, "body", "state")
    await store.upsert("items", rows)
    await store.upsert("items", rows[:2])
    assert await all_rows(store, "items", tenant, "body", "state") == first
    assert len(first) == 5


async def test_the_newest_version_of_a_row_counts_and_is_found_at_once(store: MilvusStore, tenant: str) -> None:
    for version in range(3):
        await store.upsert("items", [item(tenant, "1", state=str(version))])
        found = await store.get("items", [row_id(tenant, "1")], "state")
        assert found[row_id(tenant, "1")]["state"] == str(version)


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


async def test_a_store_made_with_another_encoder_is_refused(store: MilvusStore, milvus: str, tenant: str) -> None:
    class Other(StaticEncoder):
        name = "another"

    other = MilvusStore(milvus, "", Other(), Metrics("test"))
    try:
        with pytest.raises(ConfigError, match="another"):
            await other.open()
    finally:
        await other.close()


async def test_a_row_that_nobody_searches_is_not_embedded(milvus: str, store: MilvusStore, tenant: str) -> None:
    class Counting(StaticEncoder):
        texts = 0

        def encode(self, texts: Sequence[str]) -> Vectors:
            self.texts += len(texts)
            return super().encode(texts)

    encoder = Counting()
    counting = MilvusStore(milvus, "", encoder, Metrics("test"))
    try:
        for collection in ("judgments", "patterns"):
            await counting.upsert(collection, [item(tenant, "1")])
        assert encoder.texts == 0
        await counting.upsert("items", [item(tenant, "1")])
        assert encoder.texts == 1
    finally:
        await counting.close()


async def test_who_opens_it_waits_until_it_is_there_and_no_longer_than_that(
    milvus: str, encoder: StaticEncoder
) -> None:
    tries: list[StoreUnavailable] = []
    store = MilvusStore(f"http://127.0.0.1:{free_port()}", "", encoder, Metrics("test"), timeout_seconds=0.5)

    def start(error: StoreUnavailable) -> None:
        tries.append(error)
        if len(tries) > 1:
            store._uri = milvus

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
    counting = MilvusStore(milvus, "", encoder, metrics)
    await counting.upsert("items", [item(tenant, "1"), item(tenant, "2", state="old"), item(tenant, "2", state="new")])
    await counting.close()
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
    counting = MilvusStore(milvus, "", encoder, metrics)
    with pytest.raises(RowRefused, match="body") as refused:
        await counting.upsert("items", rows)
    await counting.close()
    assert refused.value.collection == "items"
    assert refused.value.ids == tuple(row_id(tenant, f"{n:02}") for n in sorted(bad))
    assert long not in refused.value.detail
    assert set(await all_rows(store, "items", tenant)) == {row_id(tenant, f"{n:02}") for n in range(20) if n not in bad}
    assert metrics.registry.get_sample_value("fleetlore_sink_rows_total", {"collection": "items"}) == 17


async def test_what_the_server_refuses_is_told_from_an_outage(milvus: str, store: MilvusStore, tenant: str) -> None:
    class Shorter(StaticEncoder):
        def encode(self, texts: Sequence[str]) -> Vectors:
            return super().encode(texts)[:, :5]

    wrong = MilvusStore(milvus, "", Shorter(), Metrics("test"))
    with pytest.raises(RowRefused, match=f"expected dim {Shorter().dimensions}, got 5") as refused:
        await wrong.upsert("items", [item(tenant, str(n)) for n in range(3)])
    await wrong.close()
    assert len(refused.value.ids) == 3
    assert await all_rows(store, "items", tenant) == {}


async def test_a_collection_that_is_missing_is_an_outage(milvus: str, encoder: StaticEncoder, tenant: str) -> None:
    nowhere = MilvusStore(milvus, "", encoder, Metrics("test"), version="nowhere")
    with pytest.raises(StoreUnavailable, match="does not exist"):
        await nowhere.upsert("items", [item(tenant, "1")])
    await nowhere.close()


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
