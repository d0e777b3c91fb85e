import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, Literal

import orjson
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from msgspec import structs

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.kafka.client import connected
from fleetlore.recall.bound import backing_of_item
from fleetlore.recall.index import Hints
from fleetlore.recall.replica import LoreReplica
from fleetlore.testing import FakeClock
from fleetlore.wire.lore import Decision, Hint, Pattern
from fleetlore.wire.stats import stable_hash
from fleetlore.wire.topics import topic
from tests.build import memory_item
from tests.waiting import until


def pattern(id: str, failures: int = 1, **fields: Any) -> bytes:
    return Pattern(
        id=id, level="exact", tenant="x", tool="sql", call="call", failures=failures, calls=failures, **fields
    ).to_json()


def item(id: str, **fields: Any) -> bytes:
    change = {"was": ("a=1",), "now": ("a=2",)}
    return memory_item(id, **({"tenant": "x", "pattern": "class"} | change | fields)).to_json()


class Writer:
    def __init__(self, producer: AIOKafkaProducer, tenant: str) -> None:
        self._producer = producer
        self._tenant = tenant

    async def put(self, name: str, id: str, value: bytes | None) -> None:
        await self._producer.send_and_wait(topic(self._tenant, name), value, key=id.encode())


@asynccontextmanager
async def following(address: str, tenant: str, **options: Any) -> AsyncIterator[LoreReplica]:
    """A replica that has caught up."""
    replica = LoreReplica(address, tenant, **options)
    await replica.start()
    assert await replica.caught_up(120)
    yield replica
    await replica.close()


@pytest.fixture
async def writer(broker: EmbeddedBroker, tenant: str, make_topics: Any) -> AsyncIterator[Writer]:
    await make_topics(broker.address, tenant, "patterns", "items", "decisions", partitions=3)
    async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
        yield Writer(producer, tenant)


async def test_a_late_joiner_knows_everything(broker: EmbeddedBroker, tenant: str, writer: Writer) -> None:
    for number in range(20):
        await writer.put("patterns", f"p{number}", pattern(f"p{number}"))
    await writer.put("items", "r", item("r"))
    async with following(broker.address, tenant) as replica:
        assert set(replica.index.patterns) == {f"p{number}" for number in range(20)}
        assert [each.id for each in replica.index.recoveries("class")] == ["r"]
        await writer.put("patterns", "p0", pattern("p0", failures=7))
        await writer.put("patterns", "new", pattern("new"))
        await writer.put("items", "r", None)
        assert await replica.caught_up(120)
        assert replica.index.patterns["p0"].failures == 7 and replica.index.items == {}
    assert "p0" in replica.index.patterns
    index = await LoreReplica.snapshot(broker.address, tenant, timeout_seconds=120)
    assert (index.patterns, index.items) == (replica.index.patterns, {}), "a snapshot reads everything once"


async def test_what_cannot_be_read_is_skipped_and_counted(broker: EmbeddedBroker, tenant: str, writer: Writer) -> None:
    sums = (
        {"again": (9,)},
        {"again": (5, 9, 2, 1)},
        {"balanced": (1,)},
        {"hours": [(1, 2, 3)]},
    )
    wrong = [orjson.dumps(orjson.loads(pattern("x")) | each) for each in sums]
    bad = (b"\xff", b"[]", b"{}", b"null", b'{"id": "x", "level": "exact", "new_field": 1}', *wrong)
    for number, value in enumerate(bad):
        await writer.put("patterns", f"bad{number}", value)
    await writer.put("patterns", "good", pattern("good"))
    async with following(broker.address, tenant) as replica:
        assert set(replica.index.patterns) == {"good"} and replica.unreadable == len(bad)


async def test_an_outage_costs_nothing_that_is_known(own_broker: EmbeddedBroker, make_topics: Any) -> None:
    replica = LoreReplica(own_broker.address, "default")
    await replica.start()
    assert not await replica.caught_up(0.2)
    own_broker.start()
    await make_topics(own_broker.address, "default", "patterns", "items", partitions=1)
    async with AIOKafkaProducer(bootstrap_servers=own_broker.address) as producer:
        await producer.send_and_wait(topic("default", "patterns"), pattern("before"), key=b"before")
    assert await replica.caught_up(120)
    own_broker.kill()
    assert not await replica.caught_up(0.2)
    assert set(replica.index.patterns) == {"before"}
    async with asyncio.timeout(120):
        await replica.close()


async def test_what_was_forgotten_while_it_was_away_for_a_week_is_not_kept(
    broker: EmbeddedBroker, tenant: str, writer: Writer
) -> None:
    await writer.put("items", "stays", item("stays"))
    await writer.put("items", "gone", item("gone"))
    clock = FakeClock(0.0)
    async with following(broker.address, tenant, clock=clock) as replica:
        pass
    # Compaction has taken both the item and its tombstone: nothing on the topic says that it is gone.
    replica.index.put_item(memory_item("erased", tenant="x", pattern="class"))
    replica.index.put_hint(hint_instead_of("stays"))
    await writer.put("items", "gone", None)
    for days, known in ((5, {"stays", "erased"}), (7, {"stays"})):
        clock.advance(days * 86_400.0)
        await replica.start()
        assert await replica.caught_up(120)
        await replica.close()
        assert set(replica.index.items) == known - ({"stays"} if days == 5 else set())
    assert not replica.index.hints.standing


async def test_a_process_that_slept_for_a_week_reads_anew_although_its_connection_is_there(
    broker: EmbeddedBroker, tenant: str, writer: Writer
) -> None:
    await writer.put("items", "stays", item("stays"))
    clock = FakeClock(0.0)
    async with following(broker.address, tenant, clock=clock) as replica:
        # Forgotten while it slept; compaction has taken both the item and its tombstone.
        replica.index.put_item(memory_item("gone", tenant="x", pattern="class"))
        clock.advance(7 * 86_400.0)
        await until(lambda: set(replica.index.items) == {"stays"})
        await writer.put("items", "later", item("later"))
        await until(lambda: set(replica.index.items) == {"stays", "later"})


async def test_what_a_replaced_log_lacks_is_known_until_its_first_records_and_not_after(
    own_broker: EmbeddedBroker, make_topics: Any
) -> None:
    async def put(*ids: str) -> None:
        await make_topics(own_broker.address, "default", "patterns", "items", "decisions", partitions=2)
        async with connected(AIOKafkaProducer(bootstrap_servers=own_broker.address)) as producer:
            for id in ids:
                await producer.send_and_wait(topic("default", "items"), item(id), key=id.encode())

    own_broker.start()
    await put("a", "b", "c", "d", "e")
    replica = LoreReplica(own_broker.address, "default", most_bytes=1e6)
    await replica.start()
    assert await replica.caught_up(120)
    await replica.close()
    own_broker.kill()
    own_broker.start()
    await put()
    await replica.start()
    assert await replica.caught_up(120)
    assert set(replica.index.items) == set("abcde")  # nothing is known of the new log yet
    await put("b", "f")
    await until(lambda: set(replica.index.items) == {"b", "f"})
    assert replica.loaded
    await replica.close()


def hint_instead_of(id: str) -> Decision:
    hint = Hint(text="Use a.", author="ann", written=1.0, start=True, replaces=id)
    return Decision(kind="hint", id="hint1", on=False, by="ann", why="x", time=1.0, hint=hint)


def decided(kind: Literal["item", "pattern", "agent"], id: str, on: bool) -> bytes:
    return Decision(kind=kind, id=id, on=on, by="operator", why="wrong", time=1.0).to_json()


async def hide(writer: Writer, kind: Literal["item", "agent"], id: str, seen: Callable[[], bool]) -> None:
    await writer.put("decisions", f"{kind}/{id}", decided(kind, id, False))
    await until(seen)
    await writer.put("decisions", f"{kind}/{id}", decided(kind, id, True))
    await until(lambda: not seen())


async def test_what_is_revoked_or_said_by_a_distrusted_agent_is_hidden_until_that_is_undone(
    broker: EmbeddedBroker, tenant: str, writer: Writer
) -> None:
    liar, honest = stable_hash("liar"), stable_hash("honest")
    await writer.put("items", "lie", item("lie", said_by=(liar,)))
    await writer.put("items", "shared", item("shared", said_by=(honest, liar)))
    await writer.put("items", "true", item("true", said_by=(honest,)))
    await writer.put("patterns", "alone", pattern("alone", seen_by=(liar,)))
    await writer.put("patterns", "both", pattern("both", seen_by=(honest, liar)))
    async with following(broker.address, tenant) as replica:
        index = replica.index
        await hide(writer, "item", "true", lambda: "true" in index.items)
        await writer.put("decisions", "item/true", decided("item", "true", False))
        await hide(writer, "agent", "liar", lambda: "lie" in index.items)
        assert set(index.items) == {"true"} and set(index.patterns) == {"both"}
        # The workers publish what others back in their words.
        await writer.put("items", "shared", item("shared", said_by=(honest,)))
        await writer.put("items", "lie", item("lie", said_by=(liar,)))
        assert await replica.caught_up(120)
        assert set(index.items) == {"true", "shared"}
        await writer.put("decisions", "agent/liar", decided("agent", "liar", False))
        assert await replica.caught_up(120)
        assert set(index.items) == {"true", "shared", "lie"} and set(index.patterns) == {"alone", "both"}


async def test_a_bounded_replica_holds_what_is_of_the_agents_tools_and_best_backed(
    broker: EmbeddedBroker, tenant: str, writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1, 41):
        for tool in ("sql", "shell"):
            await writer.put("items", f"{tool}{number}", item(f"{tool}{number}", tool=tool, agents=number, support=40))
    size = backing_of_item(item("sql10", tool="sql", agents=10, support=40)).bytes
    clock = FakeClock(0.0)
    replica = LoreReplica(broker.address, tenant, clock=clock, most_bytes=20.5 * size)
    await replica.start()
    assert await replica.caught_up(120)
    # For each tool the ten items that most agents back.
    assert set(replica.index.items) == {f"{tool}{number}" for tool in ("sql", "shell") for number in range(31, 41)}
    assert replica.left_out == 60

    replica.uses("sql")
    await until(lambda: "sql21" in replica.index.items)
    assert await replica.caught_up(120)
    assert set(replica.index.items) == {f"sql{number}" for number in range(21, 41)}
    replica.uses("shell")  # what was left out of it is read again too, but not at once
    await writer.put("items", "sql40", None)
    assert await replica.caught_up(120)
    await writer.put("items", "sql1", item("sql1", tool="sql", agents=50, support=50))
    assert await replica.caught_up(120)
    assert set(replica.index.items) == {f"sql{number}" for number in range(21, 40)} | {"sql1"}
    clock.advance(60.0)
    await until(lambda: "shell31" in replica.index.items)
    said = [record.message for record in caplog.records if "do not fit" in record.message]
    assert len(said) == 1
    await replica.close()


async def test_what_is_gathered_is_not_withheld_while_a_partition_cannot_be_read(tenant: str) -> None:
    clock = FakeClock(0.0)
    replica = LoreReplica("nowhere:1", tenant, clock=clock, most_bytes=1e6)
    part = TopicPartition(topic(tenant, "items"), 0)
    record = SimpleNamespace(key=b"r", value=item("r"))
    await replica._take({part: [record]})
    assert not replica.index.items
    clock.advance(10.0)
    await replica._take({})
    assert set(replica.index.items) == {"r"}


async def test_a_hint_is_known_and_gone_with_its_record(broker: EmbeddedBroker, tenant: str, writer: Writer) -> None:
    written = hint_instead_of("r")
    await writer.put("items", "r", item("r"))
    async with following(broker.address, tenant) as replica:
        await writer.put("decisions", written.key, written.to_json())
        await until(lambda: bool(replica.index.hints.standing) and not replica.index.recoveries("class"))
        await writer.put("decisions", written.key, None)  # its author is erased
        await until(lambda: not replica.index.hints.standing and bool(replica.index.recoveries("class")))


async def test_the_hints_of_a_fetch_are_sorted_once(tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, four thousand hints held up each agent that joined for eight seconds."""
    replica = LoreReplica("nowhere:1", tenant)
    sort, sorted_ = Hints.sort, list[float]()
    monkeypatch.setattr(Hints, "sort", lambda hints, now=0.0: (sorted_.append(now), sort(hints, now)))
    written = hint_instead_of("r")
    made = [structs.replace(written, id=f"h{number}", time=float(number)) for number in range(500)]
    records = [SimpleNamespace(key=each.key.encode(), value=each.to_json()) for each in made]
    gone = SimpleNamespace(key=made[0].key.encode(), value=None)
    await replica._take({TopicPartition(topic(tenant, "decisions"), 0): [*records, gone]})
    assert next(iter(replica.index.hints.standing)) == "h499" and len(replica.index.hints.standing) == 499
    assert len(sorted_) <= 2


def test_no_reader_on_another_thread_is_let_in_while_a_decision_is_put(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, let_in = threading.RLock(), list[bool]()
    with ThreadPoolExecutor(1) as reader:
        monkeypatch.setattr(Hints, "sort", lambda *_: let_in.append(reader.submit(lock.acquire, False).result()))
        LoreReplica("nowhere:1", "x", lock=lock).obey(hint_instead_of("r"))
    assert let_in == [False]
