import asyncio
import gc
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import GroupLoadInProgressError, KafkaError, NotCoordinatorForGroupError
from aiokafka.protocol.commit import OffsetFetchRequest, OffsetFetchResponse_v3

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.adapters.follower import AdapterFollower
from fleetlore.cluster import Cluster
from fleetlore.kafka.client import (
    LONGEST_DELAY_SECONDS,
    backoff,
    connect,
    connected,
    connections,
    disconnect,
    make_admin,
    make_consumer,
    make_producer,
)
from fleetlore.kafka.emitter import Emitter
from fleetlore.kafka.read import committed_offsets, observer
from fleetlore.recall.replica import LoreReplica
from fleetlore.wire.events import TOOL, Event
from fleetlore.wire.topics import topic
from tests.cluster.secured import make_certificates
from tests.doubles.mock_cluster import MockCluster
from tests.doubles.proxy import Proxy

ROOT = Path(__file__).parents[3]
MAKING = r"_made\(AIOKafka|AIOKafka(Consumer|Producer|AdminClient)\(\n? *[^)]"
Begin = Callable[[str, str], Awaitable[Callable[[], Awaitable[None]]]]


@pytest.mark.parametrize("kind", [AIOKafkaProducer, AIOKafkaConsumer, AIOKafkaAdminClient])
async def test_a_start_that_is_cancelled_leaves_no_connection(
    broker: EmbeddedBroker, kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker takes its time to say who is in the cluster."""
    send = AIOKafkaConnection.send
    asked: asyncio.Future[AIOKafkaConnection] = asyncio.get_running_loop().create_future()

    def slow(self: AIOKafkaConnection, request: Any, expect_response: bool = True) -> Any:
        if not type(request).__name__.startswith("MetadataRequest"):
            return send(self, request, expect_response)
        asked.set_result(self)
        return asyncio.get_running_loop().create_future()

    monkeypatch.setattr(AIOKafkaConnection, "send", slow)
    client = kind(bootstrap_servers=broker.address)
    starting = asyncio.create_task(connect(client))
    connection = await asked
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()
    assert not connection.connected()
    await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())
    del connection, starting
    gc.collect()  # what is left open says so, and warnings are errors


@asynccontextmanager
async def behind_tls(broker: str, folder: Path) -> AsyncIterator[tuple[Proxy, Cluster]]:
    """A link to a broker with TLS. A broker behind a stalled link never answers the end of a TLS session."""
    files = make_certificates(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.broker)
    async with Proxy(broker, tls=context) as secured, Proxy(secured.address) as link:
        yield link, Cluster(address=link.address, security_protocol="SSL", ssl_ca_location=str(files.authority))


@pytest.mark.parametrize("servers", [1, 2])
async def test_a_cancelled_start_waits_for_no_end_of_a_tls_session(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: int
) -> None:
    """One server: its connection has asked for metadata. Two servers: each was asked whether it answers."""
    made: asyncio.Future[AIOKafkaConnection] = asyncio.get_running_loop().create_future()
    opened = AIOKafkaConnection.connect
    async with behind_tls(broker.address, tmp_path) as (link, cluster):

        async def stall_once_open(self: AIOKafkaConnection) -> Any:
            streams = await opened(self)
            link.stall()
            if not made.done():
                made.set_result(self)
            return streams

        monkeypatch.setattr(AIOKafkaConnection, "connect", stall_once_open)
        client = make_admin(replace(cluster, address=",".join([link.address] * servers)))
        starting = asyncio.create_task(connect(client))
        connection = await made
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        assert connection._protocol._transport is None


async def test_a_stop_waits_for_no_end_of_a_tls_session(broker: EmbeddedBroker, tmp_path: Path) -> None:
    async with behind_tls(broker.address, tmp_path) as (link, cluster):
        client = make_admin(cluster)
        host, port = link.address.split(":")
        connection = await create_conn(host, int(port), security_protocol="SSL", ssl_context=cluster.ssl_context())
        connections(client)._conns["a node"] = connection
        link.stall()
        await disconnect(client)
        assert connection._protocol._transport is None


@pytest.mark.parametrize("turns", range(4))
async def test_a_stop_that_is_cancelled_is_made_to_its_end(
    broker: EmbeddedBroker, tenant: str, make_topics: Callable[..., Awaitable[None]], turns: int
) -> None:
    await make_topics(broker.address, tenant, "adapters.acks")
    producer = AIOKafkaProducer(bootstrap_servers=broker.address)
    await connect(producer)
    await producer.send_and_wait(topic(tenant, "adapters.acks"), b"x")
    connections = list(producer.client._conns.values())
    assert any(each.connected() for each in connections)
    stopping = asyncio.create_task(disconnect(producer))
    for _ in range(turns):
        await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.wait([stopping])
    assert stopping.cancelled() or turns > 1
    if turns:  # else it had not begun
        assert not any(each.connected() for each in connections)
    await disconnect(producer)
    assert not any(each.connected() for each in connections)


class Taker:
    async def take(self, name: str, key: bytes, value: bytes | None) -> None: ...

    async def turn(self) -> None: ...


async def emit(address: str, tenant: str) -> Callable[[], Awaitable[None]]:
    emitter = Emitter(address, tenant)
    await emitter.start()
    emitter.emit(Event("outcome", tenant, "agent", "s", 0, 0.0, {TOOL: "sql"}))
    return lambda: emitter.close(0.0)


async def replicate(address: str, tenant: str) -> Callable[[], Awaitable[None]]:
    replica = LoreReplica(address, tenant)
    await replica.start()
    return replica.close


async def follow(address: str, tenant: str) -> Callable[[], Awaitable[None]]:
    feed, follower = AdapterFollower(address, tenant, {}), Taker()
    await feed.join(follower)
    return lambda: feed.leave(follower)


@pytest.mark.parametrize("begin", [emit, replicate, follow])
async def test_who_is_closed_while_a_failed_client_is_being_stopped_does_not_go_on(
    broker: EmbeddedBroker, tenant: str, monkeypatch: pytest.MonkeyPatch, begin: Begin
) -> None:
    """`AIOKafkaClient.close` waits for a task that it has cancelled, and takes any cancellation for that task's."""
    stopping = asyncio.Event()
    synchronize = AIOKafkaClient._md_synchronizer

    async def slow_to_end(self: AIOKafkaClient) -> None:
        try:
            await synchronize(self)
        finally:
            stopping.set()
            await asyncio.Event().wait()

    async def fail(*_: Any, **__: Any) -> None:
        raise KafkaError("it fails")

    monkeypatch.setattr(AIOKafkaClient, "_md_synchronizer", slow_to_end)
    monkeypatch.setattr(AIOKafkaProducer, "partitions_for", fail)
    monkeypatch.setattr(AIOKafkaConsumer, "getmany", fail)
    before = asyncio.all_tasks()
    close = await begin(broker.address, tenant)
    (task,) = asyncio.all_tasks() - before
    await stopping.wait()
    await asyncio.sleep(0)
    await close()
    assert task.done()


def test_all_clients_are_made_in_one_place() -> None:
    """Address, TLS and SASL of a broker are set in one module only."""
    files = (file for package in ("fleetlore", "sinks", "streams") for file in (ROOT / package).rglob("*.py"))
    making = {file for file in files if re.search(MAKING, file.read_text())}
    assert making == {ROOT / "fleetlore/kafka/client.py"}


def test_delays_grow_to_the_longest_and_stay_there() -> None:
    delays = list(islice(backoff(), 9))
    assert all(later in (2 * sooner, LONGEST_DELAY_SECONDS) for sooner, later in pairwise(delays))
    assert delays[-1] == LONGEST_DELAY_SECONDS


class Leaking:
    """A client whose stop raises the cancellation of an inner task."""

    async def stop(self) -> None:
        own = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        own.cancel()
        await own


async def test_a_stop_that_cancels_its_own_task_does_not_cancel_the_caller() -> None:
    await disconnect(Leaking())
    caller = asyncio.create_task(disconnect(Leaking()))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller


@pytest.mark.long
async def test_an_observer_finds_a_leader_that_has_moved() -> None:
    """The answer of a broker that hung comes late, and no other event makes the client look."""
    pytest.importorskip("confluent_kafka", reason="the mock cluster is in the confluent-kafka wheel")
    with MockCluster(brokers=2) as cluster:
        cluster.create_topic("t", partitions=1)
        cluster.move_leader("t", 0, 1)
        async with observer(cluster.address) as consumer:
            await connections(consumer).add_topic("t")
            cluster.move_leader("t", 0, 2)
            partition = TopicPartition("t", 0)
            consumer.assign([partition])
            async with asyncio.timeout(120):
                assert await consumer.position(partition) == 0


@pytest.mark.parametrize("refusal", [NotCoordinatorForGroupError, GroupLoadInProgressError])
async def test_a_refusal_to_say_what_is_committed_does_not_mean_that_nothing_is(
    broker: EmbeddedBroker,
    tenant: str,
    make_topics: Callable[..., Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
    refusal: type[KafkaError],
) -> None:
    """A broker that does not coordinate the group answers with an error in a separate field."""
    await make_topics(broker.address, tenant, "events", partitions=2)
    one, other = (TopicPartition(topic(tenant, "events"), number) for number in range(2))
    send = AIOKafkaClient.send

    async def refuse(self: AIOKafkaClient, node: int, request: Any, **options: Any) -> Any:
        if isinstance(request, OffsetFetchRequest):
            return OffsetFetchResponse_v3(0, [], refusal.errno)
        return await send(self, node, request, **options)

    async with connected(make_consumer(broker.address, group=tenant)) as consumer:
        consumer.assign([one])
        await consumer.commit({one: 1})
    async with connected(make_admin(broker.address)) as admin:
        committed = await committed_offsets(admin, tenant, [one, other])
        assert {each: at.offset for each, at in committed.items()} == {one: 1, other: -1}
        monkeypatch.setattr(AIOKafkaClient, "send", refuse)
        with pytest.raises(KafkaError, match=f"{tenant}: not said"):
            await committed_offsets(admin, tenant, [one, other])
        assert await committed_offsets(admin, tenant, []) == {}


@pytest.mark.parametrize("make", [make_producer, make_consumer, make_admin])
async def test_a_server_that_hangs_delays_no_start(broker: EmbeddedBroker, make: Callable[[str], Any]) -> None:
    """It takes connections and never answers; the client picks an order by chance, so it is tried a few times."""

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1024):
            pass
        writer.close()

    silent = await asyncio.start_server(hang, "127.0.0.1", 0)
    hanging = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    try:
        for _ in range(6):
            client = make(f"{hanging},{broker.address}")
            async with asyncio.timeout(30):
                await connect(client)
            await disconnect(client)
    finally:
        await asyncio.sleep(0.1)  # the server hears that they are gone
        silent.close()


async def test_where_no_server_answers_the_client_says_so(unused_address: str) -> None:
    client = make_producer(f"{unused_address},{unused_address}")
    with pytest.raises(KafkaError):
        await connect(client)
