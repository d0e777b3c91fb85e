"""The trainer on a real broker: it publishes, resumes after a kill, and ends cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
import torch
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from benchmarks.pretrain import world_judgments
from fleetlore.adapters.listing import AdapterListing, read_adapters
from fleetlore.config import Settings
from fleetlore.errors import BrokerUnavailable, ConfigError
from fleetlore.kafka.read import observer
from fleetlore.retrieval.encoder import shared_encoder
from fleetlore.risk.network import load_base
from fleetlore.wire.adapter_manifest import AdapterPointer, ProceduralManifest
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Judgment
from models.adapter.admission import Cadence
from models.adapter.learner import Learner
from models.adapter.lora_trainer import TrainerConfig
from models.data.dataset import examples_of
from models.promotion.gate import GateConfig
from sinks.adapter_publisher import ADAPTER_TOPICS, AdapterPublisher
from sinks.health_endpoint import Readiness
from sinks.metrics import Metrics
from sinks.signing_key import create_signing_key, load_signing_key
from streams.embedded.broker import EmbeddedBroker, free_port
from streams.training.judgment_log import judgments_of
from streams.training.remake import remade
from streams.training.trainer import TrainerRole, run_trainer

MakeTopics = Callable[..., Awaitable[None]]
PARTITIONS = 2
SMALLEST_UPDATE = 8
pytestmark = pytest.mark.timeout(300)  # it learns, and beside it others do

WORKER = Path(__file__).parent / "trainer_worker.py"


@pytest.fixture
async def settings(broker: EmbeddedBroker, tenant: str, make_topics: MakeTopics, tmp_path: Path) -> Settings:
    await make_topics(broker.address, tenant, *ADAPTER_TOPICS, "adapters.acks", "judgments", partitions=PARTITIONS)
    create_signing_key(tmp_path / "key")
    return Settings(
        broker=broker.address,
        tenants=(tenant,),
        group=tenant,
        session_timeout_seconds=6.0,
        signing_key=str(tmp_path / "key"),
        adapters_dir=str(tmp_path / "adapters"),
        trainer_cpu_share=8.0,  # what the test itself spends counts as the trainer's
    )


async def send(settings: Settings, judgments: list[Judgment], *others: bytes) -> None:
    """Ten judgments a record, as the stage before writes them."""
    producer = AIOKafkaProducer(bootstrap_servers=settings.broker)
    await producer.start()
    name = topic(settings.tenants[0], "judgments")
    for start in range(0, len(judgments), 10):
        value = orjson.dumps([orjson.loads(judgment.to_json()) for judgment in judgments[start : start + 10]])
        await producer.send_and_wait(name, value, partition=start // 10 % PARTITIONS)
    for value in others:
        await producer.send_and_wait(name, value, partition=0)
    await producer.stop()


@asynccontextmanager
async def running(settings: Settings, **options: int) -> AsyncIterator[tuple[Metrics, Learner]]:
    """A trainer that learns fast and passes easily; it is cut off, not asked to end."""
    tenant = settings.tenants[0]
    metrics = Metrics("trainer")
    learner = Learner(
        tenant,
        load_base(),
        shared_encoder(),
        TrainerConfig(steps=1),
        Cadence(smallest_update=SMALLEST_UPDATE, updates_per_candidate=1, patience_seconds=0.2),
        GateConfig(
            minimum_steps=20,
            minimum_failures=3,
            balanced_accuracy_margin=1.0,
            recall_margin=1.0,
            false_promotions=1e9,
            auroc_margin=1.0,
        ),
    )
    async with AdapterPublisher.from_settings(ProceduralManifest, settings) as publisher:
        role = TrainerRole(settings, {tenant: learner}, publisher, metrics, Readiness("broker"), **options)
        task = asyncio.create_task(role.run(asyncio.Event()))
        try:
            yield metrics, learner
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def value(metrics: Metrics, name: str) -> float:
    return sum(
        sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == f"fleetlore_{name}"
    )


def pointed(versions: int) -> Callable[[AdapterListing], bool]:
    """The channel was moved at least so often: a manifest is there before anybody runs it."""
    return lambda listing: any(pointer["epoch"] >= versions for pointer in listing.pointers)


async def listing_when(
    settings: Settings, check: Callable[[AdapterListing], bool], seconds: float = 120
) -> AdapterListing:
    async with asyncio.timeout(seconds):
        while not check(listing := await read_adapters(settings.broker, settings.tenants[0])):
            await asyncio.sleep(0.1)
    return listing


def world(settings: Settings, sessions: int, seed: int = 0) -> list[Judgment]:
    return list(world_judgments(0, sessions, seed=seed, tenant=settings.tenants[0]))


async def committed(settings: Settings) -> int:
    consumer = AIOKafkaConsumer(bootstrap_servers=settings.broker, group_id=f"{settings.group}.trainer")
    await consumer.start()
    name = topic(settings.tenants[0], "judgments")
    try:
        return sum([await consumer.committed(TopicPartition(name, p)) or 0 for p in range(PARTITIONS)])
    finally:
        await consumer.stop()


async def test_judgments_become_signed_versions_with_a_lineage(settings: Settings) -> None:
    judgments = world(settings, 200)
    await send(settings, judgments[:100], b"not json", b'{"odd": 1}', b"[1, null]")
    async with running(settings) as (metrics, _):
        await listing_when(settings, pointed(1))
        await send(settings, judgments[100:])
        listing = await listing_when(settings, pointed(2))
        assert value(metrics, "trainer_sessions_total") >= 100
        assert value(metrics, "adapters_published_total") >= 1
    first, second = listing.manifests[:2]
    assert (first["ordinal"], second["ordinal"]) == (1, 2)
    assert first["parent"] is None and second["parent"] == first["version"]
    assert first["sessions"] > 0 and first["agents"] > 1
    assert {entry["topic"] for entry in first["data"]} == {topic(settings.tenants[0], "judgments")}
    assert first["metrics"]["auroc"] > 0.5
    assert listing.pointers[0]["version"] in {manifest["version"] for manifest in listing.manifests}


async def until(check: Callable[[], bool], seconds: float = 120.0) -> None:
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.05)


async def test_a_session_that_comes_again_is_not_learned_again(settings: Settings) -> None:
    judgments = world(settings, 60)
    learnable = sum(not examples_of(judgment, shared_encoder())[0].held_out for judgment in judgments)
    await send(settings, judgments)
    async with running(settings) as (metrics, learner):

        def all_accounted_for(listing: AdapterListing) -> bool:
            learned: int = sum(m["sessions"] for m in listing.manifests)
            return learned + len(learner.waiting) == learnable

        await listing_when(settings, all_accounted_for)
        await send(settings, judgments)
        await until(lambda: value(metrics, "trainer_sessions_total") == 120)
        await until(lambda: len(learner.waiting) < SMALLEST_UPDATE)
        await listing_when(settings, all_accounted_for)


@pytest.mark.long
async def test_a_killed_trainer_continues_from_its_last_version(settings: Settings) -> None:
    await send(settings, world(settings, 80))
    async with running(settings) as (metrics, _):
        await until(lambda: value(metrics, "commits_total") > 0)
        first = await listing_when(settings, pointed(1))
    assert 0 < await committed(settings) <= 8
    published = len(first.manifests)
    await send(settings, world(settings, 80, seed=1))
    async with running(settings):
        listing = await listing_when(settings, lambda listing: len(listing.manifests) > published)
    assert len({m["ordinal"] for m in listing.manifests}) == len(listing.manifests)
    versions = {m["version"] for m in listing.manifests}
    assert all(m["parent"] in versions for m in listing.manifests[1:])


@pytest.mark.long
async def test_a_restart_recalls_the_newest_sessions_and_no_more(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten sessions a record, on two partitions in turn; one committed offset lies behind the end of the log."""
    recalled: list[str] = []
    monkeypatch.setattr(
        Learner, "restore", lambda self, sessions: recalled.extend(judged.judgment.trajectory.id for judged in sessions)
    )
    judgments = world(settings, 100)
    await send(settings, judgments)
    name = topic(settings.tenants[0], "judgments")
    async with observer(settings.broker, f"{settings.group}.trainer") as consumer:
        places = {TopicPartition(name, 0): 4, TopicPartition(name, 1): 99}
        consumer.assign(list(places))
        await consumer.commit(places)
    async with running(settings, recalled_sessions=30) as (metrics, _):
        await until(lambda: value(metrics, "trainer_sessions_total") > 0 or len(recalled) >= 30)
    ids = [judgment.trajectory.id for judgment in judgments]
    # The records before offset 4 of the first partition end with sessions 60 to 69, those of the other with 90 to 99.
    assert recalled == [*ids[45:50], *ids[60:70], *ids[75:80], *ids[90:100]]


def learned_anew(withdrawn: str) -> Callable[[AdapterListing], bool]:
    """The channel runs a version, younger than the withdrawn one, that does not descend from it."""

    def check(listing: AdapterListing) -> bool:
        parents = {m["version"]: m["parent"] for m in listing.manifests}
        ordinals = {m["version"]: m["ordinal"] for m in listing.manifests}
        line = [next(pointer["version"] for pointer in listing.pointers)]
        while (parent := parents[line[-1]]) is not None:
            line.append(parent)
        return ordinals[line[0]] > ordinals[withdrawn] and withdrawn not in line

    return check


@pytest.mark.long
class Positions:
    """A consumer of two partitions, of which nobody has committed the second."""

    def __init__(self, name: str) -> None:
        self.at = {TopicPartition(name, 0): 90, TopicPartition(name, 1): 90}

    def assignment(self) -> set[TopicPartition]:
        return set(self.at)

    async def committed(self, partition: TopicPartition) -> int | None:
        return 40 if partition.partition == 0 else None

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.at[partition] = offset

    async def seek_to_beginning(self, partition: TopicPartition) -> None:
        self.at[partition] = 0


async def test_after_an_erasure_all_that_no_version_holds_is_read_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first commit, whatever had been read by then was forgotten and never learned."""

    async def none(*arguments: object) -> list[Any]:
        return []

    monkeypatch.setattr("streams.training.trainer.newest_before", none)
    consumer: Any = Positions(topic(settings.tenants[0], "judgments"))
    publisher: Any = None
    role = TrainerRole(settings, {}, publisher, Metrics("trainer"), Readiness("broker"))
    role._trainers = {topic(settings.tenants[0], "judgments"): SimpleNamespace(forget=none, recall=lambda known: None)}  # type: ignore[dict-item]
    await role._begin_again(consumer)
    assert sorted(consumer.at.values()) == [0, 40]


async def test_a_rollback_is_not_undone_by_what_was_learned_before(settings: Settings) -> None:
    tenant = settings.tenants[0]
    await send(settings, world(settings, 100))
    async with (
        running(settings) as (metrics, learner),
        AdapterPublisher.from_settings(ProceduralManifest, settings) as operator,
    ):
        first, second, *_ = (await listing_when(settings, pointed(2))).manifests
        await until(lambda: value(metrics, "trainer_sessions_total") == 100 and len(learner.waiting) < SMALLEST_UPDATE)
        await operator.rollback(tenant, first["version"])
        await send(settings, world(settings, 100, seed=2))
        await listing_when(settings, learned_anew(second["version"]))


@pytest.mark.long
async def test_a_rollback_is_not_undone_by_the_candidate_that_is_being_published(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant, publish = settings.tenants[0], AdapterPublisher.publish
    async with AdapterPublisher.from_settings(ProceduralManifest, settings) as operator:

        async def overtaken(
            self: AdapterPublisher, weights: bytes, manifest: ProceduralManifest, **how: Any
        ) -> AdapterPointer:
            if manifest.ordinal == 3:
                listing = await read_adapters(settings.broker, tenant)
                await operator.rollback(tenant, listing.manifests[0]["version"])
            return await publish(self, weights, manifest, **how)

        monkeypatch.setattr(AdapterPublisher, "publish", overtaken)
        await send(settings, world(settings, 100))
        async with running(settings):
            listing = await listing_when(settings, lambda listing: len(listing.manifests) >= 3)
            await send(settings, world(settings, 100, seed=2))
            await listing_when(settings, learned_anew(listing.manifests[1]["version"]))


def started(settings: Settings, port: int = 0) -> dict[str, str]:
    """Environment of a trainer process."""
    return {
        **os.environ,
        "FLEETLORE_BROKER": settings.broker,
        "FLEETLORE_TENANTS": settings.tenants[0],
        "FLEETLORE_GROUP": settings.group,
        "FLEETLORE_SESSION_TIMEOUT_SECONDS": "6",
        "FLEETLORE_SIGNING_KEY": settings.signing_key,
        "FLEETLORE_ADAPTERS_DIR": settings.adapters_dir,
        "FLEETLORE_METRICS_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }


RUN = (
    "import asyncio; from fleetlore.config import Settings; from streams.training.trainer import run_trainer;"
    "asyncio.run(run_trainer(Settings.from_env(), niceness=0))"
)


async def test_versions_are_made_again_from_the_log(settings: Settings) -> None:
    torch.set_num_threads(1)
    public = load_signing_key(settings.signing_key).public_base64
    await send(settings, world(settings, 60))
    async with running(settings):
        listing = await listing_when(settings, pointed(2))
    for manifest in listing.manifests[:2]:
        found = await remade(settings.with_(public_key=public), settings.tenants[0], manifest["version"][:16])
        assert found.same and found.updates == len(manifest["batches"]) > 0
        assert found.sessions >= manifest["sessions"] > 0
    with pytest.raises(ConfigError, match="0 published versions"):
        await remade(settings.with_(public_key=public), settings.tenants[0], "ffff")


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_version_is_made_again_from_the_log_though_its_trainer_was_killed(settings: Settings) -> None:
    """Two trainer processes, each cut off by SIGKILL; versions of both come out again, to the byte."""
    public = load_signing_key(settings.signing_key).public_base64
    epoch, put_in_service = 0, []
    for seed in (0, 1):
        await send(settings, world(settings, 100, seed=seed))
        process = await asyncio.create_subprocess_exec(sys.executable, str(WORKER), env=started(settings))
        try:
            await listing_while(settings, process, pointed(epoch + 1))
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            await process.wait()
        # What it did until it was dead. Manifests say nothing of that: the kill may fall between one and its pointer,
        # and a version that nobody was pointed to is made once more by the next process.
        (pointer,) = (await read_adapters(settings.broker, settings.tenants[0])).pointers
        epoch = pointer["epoch"]
        put_in_service.append(pointer["version"])
    manifests = {
        manifest["version"]: manifest
        for manifest in (await read_adapters(settings.broker, settings.tenants[0])).manifests
    }
    assert len(set(put_in_service)) == 2
    assert manifests[put_in_service[1]]["parent"] in manifests
    for version in put_in_service:
        found = await remade(
            settings.with_(public_key=public), settings.tenants[0], version[:16], timeout_seconds=PATIENCE_SECONDS
        )
        assert found.same and found.updates == len(manifests[version]["batches"]) > 0
        assert found.sessions >= manifests[version]["sessions"] > 0


PATIENCE_SECONDS = 300.0  # a busy machine imports torch and peft for a minute: only a process that hangs takes longer


async def listing_while(
    settings: Settings, process: asyncio.subprocess.Process, check: Callable[[AdapterListing], bool]
) -> None:
    """Wait until the topics pass the check; fails at once when the process ends before."""
    ended = asyncio.create_task(process.wait())
    passed = asyncio.create_task(listing_when(settings, check, PATIENCE_SECONDS))
    await asyncio.wait((ended, passed), return_when=asyncio.FIRST_COMPLETED)
    if not passed.done():
        passed.cancel()
        raise AssertionError(f"the trainer ended by itself, with {process.returncode}")
    ended.cancel()
    await passed


# What `fleetlore trainer` does, with an import of torch that takes for ever.
IMPORTING = (
    "import asyncio, time; import streams.training.trainer as trainer; from fleetlore.config import Settings;"
    "from streams.runtime.lifecycle import leave; trainer._learners = lambda *_: time.sleep(600);\n"
    "async def train(): await trainer.run_trainer(Settings.from_env(), niceness=0); leave(0)\n"
    "asyncio.run(train())"
)


class _Reniced(Exception):
    """In place of a nice value that the tests would keep."""


async def test_what_is_wrong_is_said_before_the_trainer_takes_less_of_the_cpu(
    settings: Settings, unused_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def renice(niceness: int) -> None:
        raise _Reniced(niceness)

    monkeypatch.setattr(os, "nice", renice)
    settings = settings.with_(metrics_port=0)
    with pytest.raises(ConfigError, match="SIGNING_KEY"):
        await run_trainer(settings.with_(signing_key=""))
    with pytest.raises(BrokerUnavailable):
        await run_trainer(settings.with_(broker=unused_address))
    with pytest.raises(_Reniced) as reniced:
        await run_trainer(settings)
    assert 0 < reniced.value.args[0] <= 5


@pytest.mark.timeout(120)
async def test_sigterm_is_heard_while_it_still_imports(settings: Settings) -> None:
    port = free_port()

    def alive() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=2) as page:
            return bool(page.status == 200)
        return False

    process = await asyncio.create_subprocess_exec(sys.executable, "-c", IMPORTING, env=started(settings, port))
    try:
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(alive):
                await asyncio.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(15):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.long
@pytest.mark.timeout(420)
async def test_sigterm_ends_it_with_exit_code_0(settings: Settings) -> None:
    port = free_port()
    environment = started(settings, port)
    await send(settings, world(settings, 400))

    def learning() -> bool:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as page,
        ):
            return b"fleetlore_trainer_updates_total 0.0" not in page.read()
        return False

    process = await asyncio.create_subprocess_exec(sys.executable, "-c", RUN, env=environment)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await asyncio.to_thread(learning):
                await asyncio.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


class Record:
    topic, partition, offset = "t", 0, 0

    def __init__(self, value: bytes | None) -> None:
        self.value = value


@pytest.mark.parametrize(
    "value", [None, b"", b"\xff", b"{}", b"[]", b"[[1]]", b'"x"', b"12", b'{"trajectory": 1, "verdict": {}}']
)
def test_what_is_no_judgment_is_left_out(value: Any) -> None:
    assert judgments_of(Record(value)) == []
