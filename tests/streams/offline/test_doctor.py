"""The doctor finds no fault in a healthy fleet, and names the remedy for each fault."""

import json
import time
from pathlib import Path

import pytest

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.adapters.signatures import create_signing_key
from fleetlore.clock import Clock
from fleetlore.cluster import STACK_FILE, roles_of
from fleetlore.config import Settings
from fleetlore.kafka.client import connected, make_producer
from fleetlore.testing import FakeClock
from fleetlore.wire.topics import topic
from sinks.health_endpoint import Readiness
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from sinks.topics import Allowed, TopicAdmin, ensure_topics
from streams.commands.run import TO_BE_SEEN_TO
from streams.offline import doctor
from streams.offline.doctor import LAG_RECORDS, examine
from tests.command import run
from tests.sinks.test_topics import Kafka


async def states(settings: Settings, clock: Clock | None = None) -> dict[str, str]:
    found = await examine(settings, clock)
    assert all(each.said for each in found)
    assert all(bool(each.todo) is (each.state != "ok") for each in found)
    return {each.check: each.state for each in found}


@pytest.fixture
def settings(broker: EmbeddedBroker, own_milvus: str, tenant: str, tmp_path: Path) -> Settings:
    key = create_signing_key(tmp_path / "signing.pem")
    keys = {"public_key": key.public_base64, "signing_key": str(tmp_path / "signing.pem")}
    return Settings(broker=broker.address, milvus=own_milvus, tenants=(tenant,), group=tenant, **keys)


async def test_what_is_missing_is_broken_and_what_is_there_is_well(
    settings: Settings, tenant: str, tmp_path: Path
) -> None:
    before = await states(settings)
    assert (before["broker"], before["topics"], before["milvus"], before["keys"]) == ("ok", "broken", "broken", "ok")
    await ensure_topics(settings)
    async with MilvusStore.from_settings(settings) as store:
        await store.open()
    (agents,) = [each.said for each in await examine(settings) if each.check == "agents"]
    assert agents.startswith("agents are self-declared: one process can be three agents")
    checks = ("broker", "topics", "replicas", "clock", "lag", "log", "milvus", "keys", "agents")
    assert await states(settings) == dict.fromkeys(checks, "ok")
    other = create_signing_key(tmp_path / "other.pem").public_base64
    assert (await states(settings.with_(public_key=other)))["keys"] == "broken"
    assert (await states(settings.with_(public_key="", signing_key="")))["keys"] == "look"
    async with connected(make_producer(settings.broker)) as producer:
        for _ in range(LAG_RECORDS):
            await producer.send(topic(tenant, "events"), b"{}", partition=0)
        await producer.send_and_wait(topic(tenant, "events"), b"{}", partition=0)
    found = await states(settings, FakeClock(time.time() - 3600.0))
    assert (found["lag"], found["clock"]) == ("look", "look")


@pytest.mark.parametrize(
    ("read", "llm_url"), [("feedback", ""), ("judgments", "http://127.0.0.1:1"), ("judgments", "")]
)
async def test_the_lag_of_every_topic_that_a_stage_reads_is_looked_at(
    settings: Settings, tenant: str, monkeypatch: pytest.MonkeyPatch, read: str, llm_url: str
) -> None:
    monkeypatch.setattr(doctor, "LAG_RECORDS", 2)
    await ensure_topics(settings)
    async with connected(make_producer(settings.broker)) as producer:
        for _ in range(3):
            await producer.send_and_wait(topic(tenant, read), b"{}", partition=0)
    found = await states(settings.with_(llm_url=llm_url))
    assert found["lag"] == ("ok" if read == "judgments" and not llm_url else "look")


async def test_a_role_that_does_not_answer_is_named(unused_address: str, tmp_path: Path) -> None:
    settings = Settings(broker=unused_address, milvus=f"http://{unused_address}")
    waiting = Readiness("broker")
    with (
        Metrics("worker").serve(0, "127.0.0.1", Readiness()) as worker,
        Metrics("trainer").serve(0, "127.0.0.1", waiting) as trainer,
    ):
        roles = {"worker-0": worker, "trainer": trainer}
        urls = {name: f"http://127.0.0.1:{each.port}" for name, each in roles.items()}
        stack = {"broker": "", "metrics": urls}
        (tmp_path / STACK_FILE).write_text(json.dumps(stack))
        roles = roles_of(tmp_path)
        found = (await examine(settings, roles=roles))[-1]
        assert (found.check, found.state) == ("roles", "look")
        assert "trainer is not ready: broker: not started" in found.said and "worker-0" not in found.said
        waiting.ready("broker")
        assert (await examine(settings, roles=roles))[-1].state == "ok"
    found = (await examine(settings, roles={**roles, "trainer": f"http://{unused_address}"}))[-1]
    assert found.state == "broken" and f"trainer does not answer at http://{unused_address}" in found.said
    assert "roles" not in await states(settings), "whose addresses nobody states"


def test_the_exit_code_is_for_scripts(unused_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("doctor", "--broker", unused_address, "--milvus", f"http://{unused_address}", "--json")
    found = {each["check"]: each for each in json.loads(done.stdout)}
    assert done.exit_code == 1
    assert found["broker"]["state"] == "broken" and "FLEETLORE_BROKER" in found["broker"]["todo"]
    assert "topics" not in found, "without a broker nothing of it is asked"

    async def one(settings: Settings, roles: dict[str, str] | None) -> list[doctor.Finding]:
        return [doctor.Finding("keys", "look", "none", "make one")]

    monkeypatch.setattr(doctor, "examine", one)
    assert run("doctor").exit_code == TO_BE_SEEN_TO


@pytest.mark.parametrize("codec", ["zstd", "snappy", "lz4"])
async def test_a_codec_that_agents_may_lack_is_named_with_what_to_install(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = Kafka()
    monkeypatch.setattr("sinks.topics.make_admin", lambda _: kafka)
    settings = Settings(tenants=("acme",))
    await ensure_topics(settings)
    assert (await doctor._topics(settings)).state == "ok"
    for name in ("patterns", "items"):
        kafka.topics[topic("acme", name)]["configs"]["compression.type"] = codec
    found = await doctor._topics(settings)
    assert found.state == "look" and "`fleetlore topics apply`" in found.todo
    assert found.said.startswith(f"the broker compresses 2 topics by {codec}: an agent without `fleetlore[codecs]`")
    kafka.topics[topic("acme", "events")]["configs"]["compression.type"] = codec  # agents do not read these
    async with TopicAdmin(settings).connected() as admin:
        await admin.apply(await admin.compare(Allowed()))
    assert (await doctor._topics(settings)).state == "ok"
