"""Searches of a real Milvus Lite server."""

import asyncio
import builtins
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from fleetlore.config import Settings
from fleetlore.errors import ConfigError, ModelUnavailable, StoreUnavailable
from fleetlore.recall.encoder import StaticEncoder, shared_encoder
from fleetlore.recall.search import (
    CANDIDATES,
    LEAST_WORDS,
    SAMPLED_TEXTS,
    LoreSearch,
    common_words,
    row_id,
    telling_words,
)
from fleetlore.wire.lore import MemoryItem, Pattern
from sinks.collections import make_live
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from tests.build import memory_item
from tests.stored import row_of


@pytest.fixture
async def store(milvus: str) -> AsyncIterator[MilvusStore]:
    made = MilvusStore(milvus, "", shared_encoder(), Metrics("test"))
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def search(milvus: str, tenant: str) -> AsyncIterator[LoreSearch]:
    made = LoreSearch(Settings(milvus=milvus), tenant)
    yield made
    made.close()


def item(id: str, title: str, content: str = "", **fields: Any) -> MemoryItem:
    return memory_item(id, **({"title": title, "content": content, "description": "", "when": ""} | fields))


async def put(store: MilvusStore, tenant: str, *items: MemoryItem) -> None:
    await store.upsert("items", [row_of(tenant, each) for each in items])


async def put_patterns(store: MilvusStore, tenant: str, *patterns: Pattern) -> None:
    await store.upsert("patterns", [row_of(tenant, each) for each in patterns])


def ids(found: Sequence[tuple[float, MemoryItem]] | Sequence[tuple[float, Pattern]]) -> list[str]:
    return [each.id for _, each in found]


@pytest.mark.parametrize("asker", ["without an encoder", "with the encoder", "with another encoder"])
@pytest.mark.parametrize("stored", [False, True], ids=["words", "vectors"])
async def test_items_are_found_by_words_unless_store_and_asker_have_one_encoder(
    own_milvus: str, monkeypatch: pytest.MonkeyPatch, asker: str, stored: bool
) -> None:
    class Another(StaticEncoder):
        name = "another"

    encoders = {"without an encoder": None, "with the encoder": shared_encoder(), "with another encoder": Another()}
    monkeypatch.setattr("fleetlore.recall.search.installed_encoder", lambda: encoders[asker])
    async with MilvusStore(own_milvus, "", shared_encoder() if stored else None, Metrics("test")) as store:
        await store.open()
        net, sql = item("net", "Connection refused", "start the server"), item("sql", "No such table: cars_data", "ask")
        await put(store, "acme", item("disk", "No space left on device"), sql, net)
    search = LoreSearch(Settings(milvus=own_milvus), "acme")
    found = await search.items("OperationalError: no such table cars_data")
    assert found[0][1].content == "ask" and found[0][0] > 0.6 and all(0 <= score <= 1 for score, _ in found)
    # No word in common.
    assert ("disk" in ids(await search.items("storage full"))) == (stored and asker == "with the encoder")
    search.close()


async def test_a_search_goes_on_when_a_backfill_replaces_vectors_by_words(own_milvus: str) -> None:
    search = LoreSearch(Settings(milvus=own_milvus), "acme")
    async with MilvusStore(own_milvus, "", shared_encoder(), Metrics("test")) as store:
        await store.open()
        assert await search.items("no such table") == []
    async with MilvusStore(own_milvus, "", None, Metrics("test"), version="words") as store:
        await store.open()
        net, disk = item("net", "Connection refused"), item("disk", "No space left on device")
        await put(store, "acme", item("sql", "No such table: cars_data"), net, disk)
        await store.on_client(lambda client: make_live(client, "words"))
    with pytest.raises(StoreUnavailable):
        await search.items("no such table")
    assert ids(await search.items("no such table"))[0] == "sql"
    search.close()


async def test_what_shares_common_words_alone_is_no_match(store: MilvusStore, tenant: str, search: LoreSearch) -> None:
    await put(
        store,
        tenant,
        item("sql", "No such table on the server: cars_data", "ask for the names of the tables in the database"),
        item("net", "Connection refused by the server on port 80", "start the server"),
        item("disk", "No space left on the device", "delete the old files in the folder first"),
        *(
            item(f"{n}", f"Error {n} on the host", f"restart service{n} on the host by the command{n}")
            for n in range(9)
        ),
    )
    assert await search.items("bananas on the moon") == []
    assert ids(await search.items("the table cars_data on the moon"))[0] == "sql"


async def test_no_row_of_another_tenant_is_ever_found(store: MilvusStore, tenant: str, milvus: str) -> None:
    other = f"{tenant}-2"
    await put(store, tenant, item("mine", "No such table: cars"))
    await put(store, other, *(item(f"theirs{n}", "No such table: cars") for n in range(20)))
    await put_patterns(store, other, Pattern(id="p", level="class", tenant=other, tool="sql", template="no such table"))
    search = LoreSearch(Settings(milvus=milvus), tenant)
    assert ids(await search.items("no such table cars")) == ["mine"]
    assert await search.patterns("no such table", level="class") == []
    search.close()


@pytest.mark.parametrize(
    "tool", ['sql" or tenant != "', 'sql" or "" == "', "sql\\", 'sql" // ', "sql' or '' == '", "語 {tenant}", "a\nb"]
)
async def test_a_name_cannot_leave_its_filter(store: MilvusStore, tenant: str, search: LoreSearch, tool: str) -> None:
    mine, other = (
        Pattern(id=id, level="class", tenant=tenant, tool=name, template="no such table")
        for id, name in (("mine", tool), ("other", "sql"))
    )
    await put_patterns(store, tenant, mine, other)
    await put_patterns(store, f"{tenant}-2", Pattern(id="x", level="class", tenant="x", tool=tool, template="no such"))
    assert ids(await search.patterns("no such table", level="class", tool=tool)) == ["mine"]


@pytest.mark.parametrize(
    "text", ['"', "\\", "' or 1 == 1", "\ud800 table", "\x00table", "", " ", "語" * 3_000, "x " * 40_000]
)
async def test_any_text_may_be_searched(store: MilvusStore, tenant: str, search: LoreSearch, text: str) -> None:
    await put(store, tenant, item("1", "No such table"))
    assert set(ids(await search.items(text))) <= {"1"}
    assert await search.patterns(text, level="class") == []


async def test_what_holds_a_state_alone_is_not_found(store: MilvusStore, tenant: str, search: LoreSearch) -> None:
    await put(store, tenant, item("1", "No such table"))
    await store.upsert("items", [{"id": row_id(tenant, "state"), "tenant": tenant, "body": "", "text": ""}])
    assert ids(await search.items("no such table")) == ["1"]


async def test_of_one_kind_and_of_none_that_is_gone(store: MilvusStore, tenant: str, search: LoreSearch) -> None:
    kinds = {"1": "strategy", "2": "recovery", "3": "fact"}
    await put(store, tenant, *(item(id, "No such table", kind=kind) for id, kind in kinds.items()))
    assert ids(await search.items("no such table", kind="strategy")) == ["1"]
    assert set(ids(await search.items("no such table"))) == {"1", "2"}


async def test_of_items_that_match_alike_what_more_agents_met_comes_first(
    store: MilvusStore, tenant: str, search: LoreSearch
) -> None:
    alike = [
        item("once", "No such table", agents=1, support=9),
        item("often", "No such table", agents=4, support=5),
        item("seldom", "No such table", agents=4, support=4),
    ]
    await put(store, tenant, *alike, item("worse", "No such file in the table of contents", agents=99, support=99))
    assert ids(await search.items("no such table")) == ["often", "seldom", "once", "worse"]


async def test_patterns_of_a_level_and_a_tool(store: MilvusStore, tenant: str, search: LoreSearch) -> None:
    made = [
        Pattern(id="c1", level="class", tenant=tenant, tool="sql", template="no such table <name>", agents=2),
        Pattern(id="c2", level="class", tenant=tenant, tool="bash", template="no such file or directory", agents=9),
        Pattern(id="e1", level="exact", tenant=tenant, tool="sql", template="no such table cars"),
        Pattern(id="c3", level="class", tenant=tenant, tool="sql", template="syntax error"),
    ]
    await put_patterns(store, tenant, *made)
    found = await search.patterns("sql: no such table: dogs", level="class")
    assert ids(found) == ["c1", "c2", "c3"] or ids(found) == ["c1", "c3", "c2"]
    assert found[0] == (1.0, made[0])
    assert ids(await search.patterns("no such table", level="class", tool="bash")) == ["c2"]
    assert ids(await search.patterns("no such table", level="exact")) == ["e1"]


async def test_as_many_as_are_asked_for(store: MilvusStore, tenant: str, search: LoreSearch) -> None:
    many = CANDIDATES + 30
    await put(store, tenant, *(item(f"{n:03}", "No such table") for n in range(many)))
    assert len(await search.items("no such table", least=many)) == many
    assert len(await search.items("no such table")) >= CANDIDATES


async def test_searches_at_once_each_get_their_own_answer(store: MilvusStore, tenant: str, search: LoreSearch) -> None:
    texts = {"disk": "no space left on device", "sql": "no such table cars", "net": "connection refused"}
    await put(store, tenant, *(item(id, text) for id, text in texts.items()))
    answers = await asyncio.gather(*(search.items(text) for text in texts.values()))
    assert [ids(found)[0] for found in answers] == list(texts)


async def test_a_store_that_never_answers_is_given_up_in_time(tenant: str) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        search = LoreSearch(Settings(milvus=f"http://127.0.0.1:{silent.getsockname()[1]}"), tenant)
        with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.5 s"):
            await search.items("x", timeout_seconds=0.5)
        search.close()


async def test_a_store_that_nobody_has_written_to_is_said_so(own_milvus: str) -> None:
    search = LoreSearch(Settings(milvus=own_milvus), "acme")
    with pytest.raises(ConfigError, match="holds no items: no worker has run on it"):
        await search.items("x")
    store = MilvusStore(own_milvus, "", shared_encoder(), Metrics("test"))
    await store.open()
    # It is looked for again.
    assert await search.items("x") == []
    await store.close()
    search.close()


async def test_a_collection_of_an_earlier_version_is_said_so(own_milvus: str) -> None:
    from pymilvus import DataType, MilvusClient

    client = MilvusClient(own_milvus)
    schema = client.create_schema()
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=64)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=4)
    client.create_collection("items", schema=schema)
    client.close()
    search = LoreSearch(Settings(milvus=own_milvus), "acme")
    with pytest.raises(ConfigError, match="filled by an earlier version"):
        await search.items("x")
    search.close()


async def test_without_the_extra_it_says_which(tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "pymilvus":
            raise ImportError(name)
        return original(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    search = LoreSearch(Settings(), tenant)
    with pytest.raises(ModelUnavailable, match=r"pip install 'fleetlore\[recall\]'"):
        await search.items("x")
    search.close()


def test_words_that_many_texts_hold_are_left_out_of_a_question() -> None:
    texts = [f"the query failed on table t{number}" for number in range(SAMPLED_TEXTS)]
    common = common_words(texts)
    assert set(common) == {"the", "query", "failed", "on", "table"}
    asked = "The query on cars failed: cars model year price"
    assert telling_words(asked, common) == "cars cars model year price"
    # A question of such words alone keeps as many as are worth a search.
    assert len(telling_words("the query failed on table", common).split()) == LEAST_WORDS
    assert telling_words("", common) == ""


async def test_a_rare_word_among_many_alike_texts_is_found(store: MilvusStore, tenant: str, search: LoreSearch) -> None:
    alike = [item(f"same{number:04}", f"the query failed on table t{number}") for number in range(SAMPLED_TEXTS)]
    await put(store, tenant, *alike, item("special", "the query failed on table cars_data"))
    assert ids(await search.items("the query failed on table cars_data"))[0] == "special"
