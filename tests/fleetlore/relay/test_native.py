"""`Fleet(relay=…)`: an agent without a broker's address, and what it keeps while relay or broker fail."""

import asyncio
import logging
import os
import signal
import socket
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaProducer
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore import ConfigError, Fleet
from fleetlore.cli.relay import _unix_socket
from fleetlore.cluster import Relay
from fleetlore.kafka.by_relay import MSGPACK, Followed, Following, RelayConsumer
from fleetlore.recall.replica import LoreReplica
from fleetlore.relay.app import relay_app
from fleetlore.relay.callers import Caller, Tokens
from fleetlore.relay.native import Native
from fleetlore.wire import events as names
from fleetlore.wire.lore import Decision
from fleetlore.wire.topics import topic
from streams.embedded.broker import free_port
from tests import served
from tests.build import memory_item
from tests.fleetlore.relay.test_api import WRONG
from tests.fleetlore.relay.test_command import make_certificate, running
from tests.fleetlore.relay.test_killed import teach
from tests.read_back import sent
from tests.rows import for_each
from tests.waiting import until

SECONDS = 120.0
TOPICS = ("events", "feedback", "patterns", "items", "decisions")


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a Unix socket: such a path has at most 107 bytes."""
    return str(tmp_path_factory.mktemp("r") / "s")


@pytest.fixture
async def place(broker: EmbeddedBroker, tenant: str, make_topics: Any) -> str:
    """Address of a broker that has the tenant's topics."""
    await make_topics(broker.address, tenant, *TOPICS, partitions=2)
    return broker.address


@pytest.fixture(autouse=True)
def shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLORE_HOLDOUT_SHARE", "0")


@asynccontextmanager
async def serving(path: str, *fleets: Fleet, tokens: Tokens | None = None) -> AsyncIterator[None]:
    """A relay in this process, on a Unix socket."""
    app = relay_app({fleet.tenant: fleet for fleet in fleets}, tokens)
    with _unix_socket(Path(path)) as listening:
        async with served.serving(app, listening=[listening]):
            yield


@asynccontextmanager
async def joined(broker: str, path: str, tenant: str, ready_seconds: float = 0.0) -> AsyncIterator[tuple[Fleet, Fleet]]:
    """A relay's fleet, and that of an agent which reaches the broker through it."""
    about: dict[str, Any] = {"tenant": tenant, "ready_seconds": ready_seconds}
    async with (
        Fleet("relay", broker=broker, **about) as relay,
        serving(path, relay),
        Fleet("a1", relay=f"unix:{path}", **about) as fleet,
    ):
        yield relay, fleet


def work(fleet: Fleet, calls: int = 3, name: str | None = None) -> str:
    """A session with some calls; its id."""
    with fleet.session("find a chair", task="shop", session_id=name) as session:
        for _ in range(calls):
            session.record("search", WRONG, result="ok")
        session.succeed()
    return session.id


@pytest.mark.long
async def test_it_does_what_an_agent_of_the_broker_does(place: str, tenant: str, path: str) -> None:
    await teach(place, tenant)
    about: dict[str, Any] = {"tenant": tenant, "ready_seconds": SECONDS}
    async with (
        Fleet("relay", broker=place, **about) as relay,
        serving(path, relay),
        Fleet("a1", broker=place, **about) as direct,
        Fleet("a2", relay=f"unix:{path}", **about) as native,
    ):
        told = []
        for fleet in (direct, native):
            with fleet.session("find a chair", session_id=f"of {fleet.agent}") as session:
                told.append([tip.text for tip in session.advise("search", WRONG).tips])
                session.record("search", WRONG, error=LookupError("no index products"))
                session.message("user", "go on")
                session.record("search", {"index": "products-eu"}, result="3 hits")
                session.succeed(reward=1.0)
            assert fleet.feedback(session.id, "failure")
            assert await fleet.flush(SECONDS)
            assert fleet.sent == 6 and not fleet.dropped
        assert told[0] == told[1] != []
    found = await sent(place, tenant)
    kinds: dict[str, list[Any]] = {"a1": [], "a2": []}
    for each in found:
        each["data"].pop(names.DURATION, None)
        if each["type"] != "ai.fleetlore.feedback.v1":  # an agent's own goes among its events by a relay
            kinds[each["agent"]].append((each["sequence"], each["type"], each["data"]))
    assert kinds["a1"] == kinds["a2"]


async def test_it_begins_with_the_newest_lore_and_reads_the_older_behind_it(
    place: str, tenant: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoreReplica, "newest_records", 8)
    async with AIOKafkaProducer(bootstrap_servers=place) as producer:
        for id in map(str, range(20)):
            value = memory_item(id, tenant=tenant, pattern="class").to_json()
            await producer.send_and_wait(topic(tenant, "items"), value, key=id.encode())
        async with joined(place, path, tenant, SECONDS) as (_, fleet):
            assert await fleet.ready(SECONDS) and len(fleet.replica.index.items) == 20
            await producer.send_and_wait(topic(tenant, "items"), None, key=b"3")
            await until(lambda: len(fleet.replica.index.items) == 19)


@pytest.mark.parametrize("streams", [True, False], ids=["this version", "an earlier one"])
async def test_what_changes_comes_as_the_answer_to_one_request(
    place: str, tenant: str, path: str, monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    """An agent of an earlier version asks for each change, and the relay answers it as an earlier version does."""
    question, follow, asked = RelayConsumer._asked, Native.follow, list[bytes]()

    def asks(consumer: RelayConsumer, wait: float) -> bytes:
        body = msgspec.msgpack.decode(question(consumer, wait))
        return msgspec.msgpack.encode(body if streams else body | {"stream": False})

    async def counted(native: Native, fleet: Fleet, body: bytes) -> Any:
        asked.append(body)
        return await follow(native, fleet, body)

    monkeypatch.setattr(RelayConsumer, "_asked", asks)
    monkeypatch.setattr(Native, "follow", counted)
    async with (
        AIOKafkaProducer(bootstrap_servers=place) as producer,
        joined(place, path, tenant, SECONDS) as (_, fleet),
    ):
        for id in map(str, range(6)):
            await producer.send_and_wait(topic(tenant, "items"), memory_item(id).to_json(), key=id.encode())
            await until(lambda id=id: id in fleet.replica.index.items)
            if id == "0":
                asked.clear()
        assert any(b"items" in each for each in asked) != streams, "each change would cost every agent a request"


async def test_a_page_of_a_proxy_is_no_stream_of_lore() -> None:
    """The agent must not ask again at once: it would be busy with nothing else."""

    async def follow(request: Request) -> Response:
        asked = msgspec.msgpack.decode(await request.body(), type=Following)
        if asked.wait:
            return Response("<html>sign in</html>", media_type="text/html")
        return Response(msgspec.msgpack.encode(Followed({}, [])), media_type=MSGPACK)

    async with served.serving(Starlette(routes=[Route("/v1/native/follow", follow, methods=["POST"])])) as address:
        consumer = RelayConsumer(Relay(address=address, tenant="default", agent="a1"), [topic("default", "items")])
        await consumer.start()
        with pytest.raises(ConnectionError, match=r"is no relay: it sends text/html"):
            await consumer.getmany(timeout_ms=120_000)
        await consumer.stop()


async def test_agents_that_came_together_do_not_ask_again_together() -> None:
    waits = list[float]()

    async def follow(request: Request) -> Response:
        waits.append(msgspec.msgpack.decode(await request.body(), type=Following).wait)
        return Response(msgspec.msgpack.encode(Followed({}, [])), media_type=MSGPACK)

    async with served.serving(Starlette(routes=[Route("/v1/native/follow", follow, methods=["POST"])])) as address:
        consumer = RelayConsumer(Relay(address=address, tenant="default", agent="a1"), [topic("default", "items")])
        await consumer.start()
        assert not await consumer.getmany(timeout_ms=1)
        await until(lambda: len(waits) > 20)
        await consumer.stop()
    assert len(set(waits[1:])) == len(waits[1:]) and all(15 <= each <= 25 for each in waits[1:])


@pytest.mark.long
async def test_it_hears_at_once_what_changes_and_what_is_revoked(place: str, tenant: str, path: str) -> None:
    async with joined(place, path, tenant, SECONDS) as (_, fleet):
        index = fleet.replica.index
        await teach(place, tenant)
        await until(lambda: "better" in index.items and index.patterns)
        revoked = Decision(kind="item", id="better", on=True, by="me", why="wrong", time=1.0)
        with fleet.session("find a chair") as session:
            assert "better" in session.advise("search", WRONG, unseen=False).ids
            await put(place, topic(tenant, "decisions"), revoked.key.encode(), revoked.to_json())
            await until(lambda: "better" not in session.advise("search", WRONG, unseen=False).ids)


async def put(address: str, name: str, key: bytes, value: bytes | None) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        await producer.send_and_wait(name, value, key=key)


@pytest.mark.long
async def test_a_relay_that_comes_back_takes_and_gives_what_came_meanwhile(place: str, tenant: str, path: str) -> None:
    await teach(place, tenant)
    about: dict[str, Any] = {"tenant": tenant, "ready_seconds": SECONDS}
    async with Fleet("relay", broker=place, **about) as relay:
        async with serving(path, relay):
            fleet = Fleet("a1", relay=f"unix:{path}", **about)
            await fleet.start()
        try:
            index = fleet.replica.index
            (pattern,) = index.patterns
            await put(place, topic(tenant, "patterns"), pattern.encode(), None)
            await asyncio.sleep(0.5)
            assert pattern in index.patterns, "old lore is better than none"
            work(fleet)
            async with serving(path, relay):
                assert await fleet.flush(SECONDS), "what it said meanwhile was kept for the relay"
                await until(lambda: pattern not in index.patterns)
                assert "better" in index.items
        finally:
            await fleet.close()
    assert [each["sequence"] for each in await sent(place, tenant)] == [*range(5)]


@pytest.mark.long
async def test_a_frozen_relay_stops_nobody_and_a_full_buffer_says_so(place: str, tenant: str, path: str) -> None:
    await teach(place, tenant)
    options = ("--http", f"unix:{path}", "--broker", place, "--tenant", tenant)
    async with (
        running(*options) as relay,
        Fleet("a1", relay=f"unix:{path}", tenant=tenant, ready_seconds=SECONDS, max_buffered_events=100) as fleet,
    ):
        relay.send_signal(signal.SIGSTOP)
        try:
            with fleet.session("find a chair") as session:
                for _ in range(150):  # nobody would end the wait of a call for this relay
                    assert session.advise("search", WRONG, unseen=False).tips
                    session.record("search", {"index": "chairs"}, result="ok")
                assert fleet.dropped == 51 and fleet.emitter.full
                assert not await fleet.flush(0.3)
        finally:
            relay.send_signal(signal.SIGCONT)
        assert await fleet.flush(SECONDS)
        assert fleet.sent == 100
    assert [each["sequence"] for each in await sent(place, tenant)] == [*range(100)]


async def test_a_slow_broker_behind_it_loses_and_doubles_nothing(
    place: str, tenant: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlore.kafka.by_relay._STORE_SECONDS", 0.1)
    async with joined(place, path, tenant) as (relay, fleet):
        plain, number = relay.emitter.flush, 0

        async def slow(timeout_seconds: float, *, hurried: bool = True) -> bool:
            nonlocal number
            number += 1
            await asyncio.sleep(0.1)
            return number % 3 == 0 and await plain(timeout_seconds, hurried=hurried)

        monkeypatch.setattr(relay.emitter, "flush", slow)
        for each in range(20):
            work(fleet, 3, f"s{each}")
            await asyncio.sleep(0.02)
        assert await fleet.flush(SECONDS) and fleet.sent == 100
    found = [(each["session"], each["sequence"]) for each in await sent(place, tenant)]
    assert sorted(found) == sorted({(f"s{each}", step) for each in range(20) for step in range(5)})


@pytest.mark.long
async def test_over_tls_by_a_token(place: str, tenant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key, tokens = tmp_path / "certificate.pem", tmp_path / "key.pem", tmp_path / "tokens"
    make_certificate(certificate, key)
    tokens.write_text(f"first-token-000001 a1 {tenant}\n")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    http = f"127.0.0.1:{free_port()}"
    tls = ("--tokens", str(tokens), "--tls-certificate", str(certificate), "--tls-key", str(key))
    async with (
        running("--http", http, "--broker", place, "--tenant", tenant, *tls),
        Fleet(
            "a1", relay=f"https://{http}", relay_token="first-token-000001", tenant=tenant, ready_seconds=SECONDS
        ) as fleet,
    ):
        work(fleet)
        assert await fleet.flush(SECONDS) and fleet.replica.loaded
    assert len(await sent(place, tenant)) == 5


@pytest.mark.parametrize(
    ("agent", "token", "tenant", "said"),
    [
        ("a1", "", "default", "give a token"),
        ("a1", "no-token-00000000", "default", "give a token"),
        ("a1", "other-token-000002", "default", "the token is of agent a2 of tenant default"),
        ("a1", "first-token-000001", "another", "the token is of agent a1 of tenant default"),
        ("a3", "third-token-000003", "another", "this relay serves no tenant 'another'"),
    ],
)
async def test_who_has_no_token_of_its_own_sends_nothing_and_is_told_why(
    path: str, unused_address: str, caplog: pytest.LogCaptureFixture, agent: str, token: str, tenant: str, said: str
) -> None:
    tokens = {
        sha256(each.encode()).digest(): Caller(of, name, sure=True)
        for each, name, of in (
            ("first-token-000001", "a1", "default"),
            ("other-token-000002", "a2", "default"),
            ("third-token-000003", "a3", "another"),
        )
    }
    relay = Fleet("relay", broker=unused_address)

    def told() -> list[str]:
        lines = [each.getMessage() for each in caplog.records]
        return [each for each in lines if "no events reach" in each]

    async with serving(path, relay, tokens=tokens):
        fleet = Fleet(agent, relay=f"unix:{path}", relay_token=token, tenant=tenant, ready_seconds=0)
        await fleet.start()
        work(fleet)
        await until(told)
        assert fleet.sent == 0 and fleet.emitter.waiting == 5
        assert not await fleet.ready(0.1)
        await fleet.close(0.1)
    assert fleet.dropped == 5 and relay.emitter.waiting == 0
    assert len(told()) == 1 and said in told()[0]


async def test_a_token_writes_acks_of_its_own_agent_alone(unused_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    async def send(_fleet: Fleet, _name: str, key: str, _value: bytes) -> bool:
        written.append(key)
        return True

    monkeypatch.setattr("fleetlore.relay.native.send_record", send)
    relay, eve = Fleet("relay", broker=unused_address), Caller("default", "eve", sure=True)
    for key in ("calls/eve", "calls/eve/refused", "calls/alice", "llm/eve", "calls/eve/alice", "alice", ""):
        for agent in ("eve", "alice"):
            ack = msgspec.json.encode({"adapter": "calls", "agent": agent})
            with suppress(HTTPException):
                await Native().record(relay, eve, "adapters.acks", key, ack)
    assert written == ["calls/eve", "calls/eve/refused"]


async def test_what_is_no_event_for_the_relay_is_dropped_alone(
    place: str, tenant: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with joined(place, path, tenant) as (_, fleet):
        work(fleet, 9, "s1")
        fleet.emitter.emit(names.Event("outcome", tenant, "a1", "s2", 0, time.time() + 1e6, {names.TOOL: "search"}))
        work(fleet, 9, "s3")
        with caplog.at_level(logging.WARNING):
            assert await fleet.flush(SECONDS)
        assert fleet.sent == 22 and fleet.dropped == 1
    assert {each["session"] for each in await sent(place, tenant)} == {"s1", "s3"}


def test_a_socket_is_for_its_user_and_group_and_what_a_killed_relay_left_is_taken_away(path: str) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(path)
    left.close()
    with _unix_socket(Path(path)) as listening:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
        listening.listen()
        with pytest.raises(ConfigError, match="another process serves there"), _unix_socket(Path(path)):
            pass
    assert not Path(path).exists()


@for_each("given", "unix:", "127.0.0.1:7411", "ftp://host:1", "http://")
def test_an_address_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="unix:PATH or http"):
        Fleet("a1", relay=given)


def test_a_fleet_is_at_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLORE_RELAY", "unix:/run/fleetlore.sock")
    assert "unix:/run/fleetlore.sock" in repr(Fleet("a1"))
    assert "nowhere:1" in repr(Fleet("a1", broker="nowhere:1")), "what the agent says counts"
    assert "unix:" not in repr(Fleet("a1", relay="")), "a relay is none of itself"
    with pytest.raises(ConfigError, match="one of"):
        Fleet("a1", broker="nowhere:1", relay="unix:/run/fleetlore.sock")
