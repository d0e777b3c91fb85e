"""Decisions on the page become records on a broker, which agents and trainer obey."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from msgspec.structs import replace
from prometheus_client import generate_latest

from fleetlore.config import Settings
from fleetlore.recall.search import quoted, row_id
from fleetlore.testing import FakeClock
from fleetlore.wire.lore import HISTORY, Decision
from fleetlore.wire.principals import session_key
from models.judge import SessionState
from sinks.metrics import Metrics
from streams.console.sources import KEPT_SECONDS, Scraper, Sources, read_metrics
from tests.build import memory_item, trajectory
from tests.doubles.memory_log import InMemoryLog

pytest.importorskip("starlette")
from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.adapters.listing import read_adapters
from fleetlore.adapters.signatures import create_signing_key
from fleetlore.errors import ConfigError
from fleetlore.recall.replica import LoreReplica
from fleetlore.wire.adapter_manifest import LanguageModelManifest
from fleetlore.wire.topics import ADAPTER_TOPICS
from sinks.adapter_publisher import AdapterPublisher
from sinks.producer import BatchProducer
from streams.console.actions import Actions
from streams.offline.operator_word import read_decisions
from streams.stage.base import Outgoing
from tests.random_adapters import version_of
from tests.streams.console.lore import item

SAID = {"by": "Ann", "why": "password=hunter2hunter2 is in it"}
LORE_TOPICS = ("patterns", "items", "decisions", "decisions.history")


async def test_a_version_is_pinned_unpinned_rolled_back_to_and_revoked(
    broker: EmbeddedBroker, tenant: str, make_topics: Any, tmp_path: Path
) -> None:
    create_signing_key(tmp_path / "key")
    settings = Settings(broker=broker.address, signing_key=str(tmp_path / "key"))
    await make_topics(broker.address, tenant, *ADAPTER_TOPICS)
    versions = [version_of(LanguageModelManifest, seed, tenant, ordinal=seed) for seed in (1, 2)]
    async with AdapterPublisher.from_settings(LanguageModelManifest, settings) as publisher:
        for each in versions:
            await publisher.publish(*each)
    actions = Actions(settings, tenant)

    async def after(action: str, version: str) -> tuple[str, bool, str]:
        await actions.decide(action, "llm", version, **SAID)
        (pointer,) = (await read_adapters(broker.address, tenant)).pointers
        return pointer["version"], bool(pointer.get("pinned")), pointer["reason"]

    old, new = (manifest.version for _, manifest in versions)
    moved_to, pinned, reason = await after("pin", old)
    assert (moved_to, pinned) == (old, True)
    assert "password=" in reason and "hunter2" not in reason and "Ann" not in reason
    assert (await after("unpin", old))[:2] == (old, False)
    assert (await after("rollback", new))[:2] == (new, False)
    assert (await after("revoke", new))[:2] == (old, False)
    with pytest.raises(ConfigError, match="no published versions"):
        await actions.decide("pin", "llm", "0" * 64, **SAID)


async def test_an_item_is_told_to_nobody_until_it_is_shown_again(
    broker: EmbeddedBroker, tenant: str, make_topics: Any
) -> None:
    await make_topics(broker.address, tenant, *LORE_TOPICS)
    async with BatchProducer(broker.address) as producer:
        await producer.deliver([Outgoing(tenant, "items", "i1", item("i1").to_json())])
    actions = Actions(Settings(broker=broker.address), tenant)

    async def told() -> bool:
        return "i1" in (await LoreReplica.snapshot(broker.address, tenant)).items

    assert await told()
    approved = Decision(kind="item", id="i1", on=False, by="ann", why="right", time=1.0, wording="words")
    await actions.decide("revoke", "item", "i1", **SAID, before=approved)
    assert not await told()
    [revoked] = await read_decisions(actions._settings, tenant, 120)
    await actions.decide("show", "item", "i1", **SAID, before=revoked)
    assert await told()
    [again] = await read_decisions(actions._settings, tenant, 120)
    assert (revoked.wording, again.wording) == ("words", "words")
    await actions.close()


def test_versions_need_the_key_and_nothing_else_is_offered() -> None:
    without, having = Actions(Settings(), "default"), Actions(Settings(signing_key="key"), "default")
    for kind in ("item", "pattern", "agent"):
        assert without.offered(kind) == having.offered(kind) != {}
    assert not without.offered("calls") and set(having.offered("calls")) == {"rollback", "pin", "unpin", "revoke"}
    assert not having.offered("nothing")


async def test_a_decision_that_no_broker_takes_is_said(tenant: str) -> None:
    actions = Actions(Settings(broker="127.0.0.1:1", milvus="http://127.0.0.1:1"), tenant)
    await actions.decide("distrust", "agent", "probe", **SAID)
    async with asyncio.timeout(30):
        while not actions.progress.get("probe", "").startswith("not done: "):
            await asyncio.sleep(0.05)
    assert "127.0.0.1:1" in actions.progress["probe"]
    await actions.close()


def said(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def test_figures_come_from_what_two_processes_count_together() -> None:
    clock, one, two = FakeClock(), Metrics("worker"), Metrics("worker")
    scraper = Scraper(["http://a", "http://b"], clock)
    for metrics in (one, two):
        metrics.consumer_lag.labels("fleetlore.default.events", "0").set(30)
    scraper.take([said(one), said(two)])
    clock.advance(10)
    for metrics in (one, two):
        metrics.processed_events.labels("sessions").inc(50)
        metrics.received_records.labels("fleetlore.default.events").inc(15)
        for seconds in (0.02,) * 98 + (3.0,) * 2:
            metrics.end_to_end_latency.labels("patterns").observe(seconds)
    scraper.take([said(one), said(two)])
    figures = scraper.figures
    assert (figures.answering, figures.endpoints) == (2, 2)
    assert figures.events_per_second == 10.0 and figures.rates == (10.0,)
    assert figures.lag_records == 60 and figures.lag_seconds == 20.0
    assert figures.latency == (0.025, 5.0)


def test_an_event_that_waited_long_is_told_by_the_largest_bound() -> None:
    clock, metrics = FakeClock(), Metrics("worker")
    scraper = Scraper(["http://a"], clock)
    metrics.end_to_end_latency.labels("patterns").observe(0.02)
    scraper.take([said(metrics)])
    clock.advance(10)
    metrics.end_to_end_latency.labels("patterns").observe(100.0)
    scraper.take([said(metrics)])
    assert scraper.figures.latency == (30.0, 30.0)


def test_lag_that_nothing_works_off_stands_still() -> None:
    clock, metrics = FakeClock(), Metrics("worker")
    scraper = Scraper(["http://a"], clock)
    metrics.consumer_lag.labels("fleetlore.default.events", "0").set(30)
    for _ in range(2):
        scraper.take([said(metrics)])
        clock.advance(2)
    assert scraper.figures.lag_seconds is None


def test_a_process_that_begins_anew_gives_no_negative_rate() -> None:
    clock, metrics = FakeClock(), Metrics("worker")
    scraper = Scraper(["http://a"], clock)
    metrics.processed_events.labels("sessions").inc(50)
    scraper.take([said(metrics)])
    clock.advance(2)
    scraper.take([said(Metrics("worker"))])
    assert scraper.figures.events_per_second == 0.0


def test_an_endpoint_that_is_gone_or_says_something_else_is_left_out() -> None:
    scraper = Scraper(["http://a", "http://b"], FakeClock())
    scraper.take([])
    assert scraper.figures.answering == 0 and scraper.figures.sample is None
    assert read_metrics(["<html>not metrics</html>\n{"]) == {}


def test_what_is_kept_is_bounded() -> None:
    clock, text = FakeClock(), said(Metrics("worker"))
    scraper = Scraper(["http://a"], clock)
    for _ in range(3 * int(KEPT_SECONDS / 60)):
        scraper.take([text])
        clock.advance(60)
    assert len(scraper.figures.rates) <= KEPT_SECONDS / 60 + 1


TLS_HANDSHAKE = b"\x16"


async def test_each_connection_of_the_page_is_as_secure_as_the_settings_say() -> None:
    first: list[bytes] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first.append(await reader.read(1))
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    settings = Settings(broker=f"{host}:{port}", kafka_security_protocol="SSL")
    async with server, Sources(settings, "acme", []):
        async with asyncio.timeout(60):
            while len(first) < 12:  # lore, dead letters, decisions and adapters, each several times
                await asyncio.sleep(0.02)
    assert set(first) == {TLS_HANDSHAKE}


async def test_a_session_named_as_the_key_of_another_does_not_stand_in_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    key = session_key("honest", "s")
    of = {row_id("t", key): trajectory(agent="honest", session="s"), key: trajectory(agent="other", session=key)}
    states = {name: SessionState(trajectory=each) for name, each in of.items()}

    async def rows(clause: str, *_: object) -> list[dict[str, str]]:
        """The session that another agent named as the key comes first where one question asks for both."""
        found = [each.to_json() for name, each in reversed(states.items()) if quoted(name) in clause]
        return [{"state": each.decode()} for each in found]

    sources = Sources(Settings(broker="nowhere:1"), "t", [])
    monkeypatch.setattr(sources, "_rows", rows)
    for name in list(states):
        assert await sources.sessions_named(key) == [(of[name], states.pop(name))]


def test_the_page_holds_no_more_lore_than_an_agent_does() -> None:
    sources = Sources(Settings(broker="nowhere:1", replica_mb=0.5), "default", [])
    for id in map(str, range(2_000)):
        sources._replica._receive_one("fleetlore.default.items", id.encode(), memory_item(id).to_json(), gathers=False)
    shown = sources.snapshot()
    assert 100 < len(shown.index.items) < 1_000 and shown.left_out == 2_000 - len(shown.index.items)


async def test_a_history_that_is_written_again_displaces_no_newer_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.console.sources._HISTORY_KEPT", 3)
    made = [Decision(kind="item", id="i", on=True, by="ann", why="wrong", time=float(n)) for n in range(5)]
    log = InMemoryLog()
    sources = Sources(Settings(), "one", [])
    for each in [*made, *(replace(each, by="(erased)", why="") for each in made[:4])]:
        log.append(HISTORY, each.to_json())
        await sources._take_history({TopicPartition(HISTORY, 0): log.read_all(HISTORY)[-1:]})
    assert [(each.time, each.by) for each in sources.snapshot().history] == [
        (4, "ann"),
        (3, "(erased)"),
        (2, "(erased)"),
    ]
