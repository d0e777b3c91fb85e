"""The contract of `streams.stage.base.Store`, with ids as odd as a sender may choose them.

Milvus and its in-memory double give the same answers, one request after the other.
"""

import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fleetlore.errors import RowRefused, StoreUnavailable
from fleetlore.recall.encoder import StaticEncoder
from fleetlore.recall.search import row_id
from sinks import milvus as module
from sinks.milvus import MilvusStore
from streams.offline.memory_pipeline import MemoryStore
from streams.stage.base import Store
from tests.odd_texts import INJECTION, ODD_IDS, ODDER_IDS, odd_ids

COLLECTIONS = ("patterns", "judgments", "items")


@pytest.fixture
async def real(milvus: str) -> AsyncIterator[MilvusStore]:
    store = MilvusStore(milvus, "", StaticEncoder())
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def both(real: MilvusStore) -> tuple[Store, Store]:
    return real, MemoryStore()


def new_tenant() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


def row(tenant: str, id: str, **columns: str) -> dict[str, Any]:
    return {"id": row_id(tenant, id), "tenant": tenant, "body": "a body", "text": "a text", **columns}


async def written(store: Store, collection: str, rows: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Write rows and return the ids of those that are refused."""
    try:
        await store.upsert(await store.resolve(collection), rows)
    except RowRefused as error:
        return error.ids
    return ()


async def everything(store: Store, collection: str, tenant: str, **equal: str) -> dict[str, dict[str, Any]]:
    rows = [each async for each in store.rows(collection, tenant, "body", "state", **equal)]
    found = {each["id"]: each for each in rows}
    assert len(found) == len(rows), "a row came twice"
    return found


def batches(ids: Sequence[str], size: int = 12) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


@pytest.mark.parametrize("collection", COLLECTIONS)
async def test_a_row_of_any_id_is_found_kept_apart_and_deleted(both: tuple[Store, Store], collection: str) -> None:
    tenant = new_tenant()
    ids = list(ODD_IDS + ODDER_IDS)
    for store in both:
        refused = await written(store, collection, [row(tenant, id, state=f"state {n}") for n, id in enumerate(ids)])
        assert refused == tuple(row_id(tenant, id) for id in ("\ud83d", "\ude00\ud83d", "x" * 1_100))
        kept = {row_id(tenant, id): f"state {n}" for n, id in enumerate(ids) if row_id(tenant, id) not in refused}
        for id in ids:
            name = row_id(tenant, id)
            expected = {name: {"id": name, "state": kept[name]}} if name in kept else {}
            assert await store.get(collection, [name], "state") == expected
        asked = [row_id(tenant, id) for id in ids]
        assert (await store.get(collection, asked, "state")).keys() == kept.keys()
        for id in ids:
            await store.delete(collection, [row_id(tenant, id)])
            kept.pop(row_id(tenant, id), None)
            assert (await everything(store, collection, tenant)).keys() == kept.keys()


async def test_an_id_that_closes_its_quotes_reads_and_deletes_no_other_row(both: tuple[Store, Store]) -> None:
    evil, victim = new_tenant(), new_tenant()
    crafted = [INJECTION.replace("victim", victim), INJECTION.replace("victim", victim).replace("'", '"')]
    for store in both:
        await store.upsert("judgments", [row(victim, str(n)) for n in range(20)])
        await store.upsert("judgments", [row(evil, each) for each in (*crafted, "other")])
        for each in crafted:
            assert (await store.get("judgments", [row_id(evil, each)], "body")).keys() == {row_id(evil, each)}
            await store.delete("judgments", [row_id(evil, each)])
        assert (await everything(store, "judgments", evil)).keys() == {row_id(evil, "other")}
        assert len(await everything(store, "judgments", victim)) == 20
        assert await everything(store, "judgments", victim, label='x" or tenant != "') == {}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(odd_ids, st.sampled_from(["", "judge", "it's", 'a"b', "\\"])), max_size=12),
    asked=st.lists(odd_ids, max_size=5),
    deleted=st.lists(odd_ids, max_size=5),
    collection=st.just("judgments"),
)
@example(rows=[("\ud800", ""), ("?", "")], asked=["\ud800"], deleted=["\ud800"], collection="judgments")
async def test_milvus_and_the_double_agree(
    both: tuple[Store, Store], rows: list[tuple[str, str]], asked: list[str], deleted: list[str], collection: str
) -> None:
    tenant = new_tenant()
    made = [row(tenant, id, label=label, state=f"state {n}") for n, (id, label) in enumerate(rows)]
    ids = [row_id(tenant, id) for id in (*asked, *(id for id, _ in rows[:3]))]
    answers = []
    for store in both:
        refused = await written(store, collection, made)
        found = await store.get(collection, ids, "state", "label")
        labelled = [await everything(store, collection, tenant, label=label) for _, label in rows[:3]]
        await store.delete(collection, [row_id(tenant, id) for id in deleted])
        answers.append((refused, found, labelled, await everything(store, collection, tenant)))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("fields", [(), ("body", "state")])
async def test_pages_end_at_any_id(
    both: tuple[Store, Store], fields: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next page begins behind the last id of a page, whatever that holds."""
    monkeypatch.setattr(module, "_ROWS_PER_PAGE", 1)
    monkeypatch.setattr(module, "_IDS_PER_PAGE", 1)
    tenant = new_tenant()
    answers = []
    for store in both:
        await written(store, "judgments", [row(tenant, id) for id in ODD_IDS + ODDER_IDS])
        answers.append(sorted([each["id"] async for each in store.rows("judgments", tenant, *fields)]))
    assert answers[0] == answers[1] and len(answers[0]) == len(ODD_IDS + ODDER_IDS) - 3


async def test_what_milvus_refuses_to_look_for_is_missing_and_stops_no_other(
    real: MilvusStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A request that Milvus cannot read is no outage: to try it again would stop every tenant of the worker."""
    tenant = new_tenant()
    await real.upsert("judgments", [row(tenant, str(n)) for n in range(9)])
    ids = [row_id(tenant, str(n)) for n in range(9)]
    monkeypatch.setattr(module, "quoted", lambda text: '"\\q"' if text == ids[4] else f'"{text}"')
    assert (await real.get("judgments", ids, "body")).keys() == set(ids) - {ids[4]}
    assert "escape" in caplog.text and repr(ids[4]) in caplog.text
    with pytest.raises(RowRefused) as refused:
        await real.delete("judgments", ids)
    assert refused.value.ids == (ids[4],)
    monkeypatch.undo()
    assert (await everything(real, "judgments", tenant)).keys() == {ids[4]}


async def test_a_request_that_is_refused_whatever_the_ids_are_is_no_empty_answer(real: MilvusStore) -> None:
    tenant = new_tenant()
    await real.upsert("judgments", [row(tenant, "1")])
    client = real._open_client()
    query = client.query
    client.query = lambda target, filter, **named: query(target, filter=f"nothing == 1 and {filter}", **named)
    with pytest.raises(StoreUnavailable, match="unknown field"):
        await real.get("judgments", [row_id(tenant, "1")], "body")
