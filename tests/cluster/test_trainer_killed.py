"""A trainer that is killed between its pointer and the confirmation leaves no fleet on two versions."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import ConsumerRecord

from fleetlore.adapters.signatures import create_signing_key, public_keys
from fleetlore.adapters.subscriber import AdapterSubscriber
from fleetlore.config import Settings
from fleetlore.kafka.client import connected, make_producer
from fleetlore.kafka.read import read_to_end
from fleetlore.wire.adapter_manifest import CHANNEL, LanguageModelManifest
from fleetlore.wire.topics import topic
from sinks.adapter_publisher import AdapterPublisher
from sinks.topics import ensure_topics
from tests.cluster.kafka_cluster import KafkaCluster
from tests.cluster.test_compaction import COMPACTED_SECONDS, SOON
from tests.doubles.weights_slot import WeightsSlot
from tests.random_adapters import version_of
from tests.streams.conftest import end, guarded, worker_environ

CHANNEL_KEY = f"{LanguageModelManifest.name}/{CHANNEL}".encode()
SECONDS = 120.0
TRAINER = """
import asyncio
from fleetlore.config import Settings
from streams.training.trainer import run_trainer

asyncio.run(run_trainer(Settings.from_env(), niceness=0))
"""
# Decides, waits, and never looks whether its pointer came first.
KILLED = """
import asyncio, sys
from tests.random_adapters import version_of
from fleetlore.config import Settings
from fleetlore.wire.adapter_manifest import LanguageModelManifest
from sinks.adapter_publisher import AdapterPublisher

class Killed(AdapterPublisher):
    async def _send(self, tenant, name, key, value):
        await super()._send(tenant, name, key, value)
        if name == "adapters.pointers":
            print("sent", flush=True)
            await asyncio.Event().wait()

async def main():
    settings = Settings.from_env()
    [tenant] = settings.tenants
    async with Killed.from_settings(LanguageModelManifest, settings) as publisher:
        known = await publisher.published(tenant)
        print("decided", flush=True)
        sys.stdin.readline()
        made = version_of(LanguageModelManifest, 3, tenant, ordinal=3, created=3.0)
        await publisher.publish(*made, known=known)

asyncio.run(main())
"""


@pytest.mark.slow
async def test_agents_old_and_new_run_one_version_though_the_losing_pointer_is_compacted(
    three: KafkaCluster, tenant: str, tmp_path: Path
) -> None:
    key = create_signing_key(tmp_path / "key")
    settings = Settings(
        broker=three.address,
        tenants=(tenant,),
        partitions=1,
        replication=3,
        signing_key=str(tmp_path / "key"),
        public_key=key.public_base64,
        weights_storage=f"file://{tmp_path}/weights",
    )
    await ensure_topics(settings)
    pointers = topic(tenant, "adapters.pointers")
    first, second = (version_of(LanguageModelManifest, n, tenant, ordinal=n, created=float(n)) for n in (1, 2))

    async def said() -> list[ConsumerRecord]:
        records = await read_to_end(three.address, [pointers], SECONDS)
        return [each for each in records if each.key == CHANNEL_KEY]

    @asynccontextmanager
    async def agent(name: str) -> AsyncIterator[AdapterSubscriber[LanguageModelManifest]]:
        subscriber = AdapterSubscriber(three.address, tenant, name, public_keys(key.public_base64), WeightsSlot())
        await subscriber.start()
        try:
            assert await subscriber.caught_up(SECONDS)
            yield subscriber
        finally:
            await subscriber.close()

    async with AdapterPublisher.from_settings(LanguageModelManifest, settings) as person, agent("early") as early:
        for weights, manifest in (first, second):
            await person.publish(weights, manifest)
        killed = subprocess.Popen(
            [sys.executable, "-c", KILLED],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **worker_environ(settings)},
        )
        assert killed.stdout is not None and killed.stdin is not None
        assert await asyncio.to_thread(killed.stdout.readline) == b"decided\n"
        await person.rollback(tenant, first[1].version)
        followed = (await said())[-1].value
        killed.stdin.write(b"\n")
        killed.stdin.flush()
        assert await asyncio.to_thread(killed.stdout.readline) == b"sent\n"
        killed.kill()
        killed.communicate()
        lost = (await said())[-1].value
        assert lost != followed, "the newest record is the one that no agent follows"
        command = sys.executable, "-c", TRAINER
        trainer = guarded(*command, environ=worker_environ(settings))
        try:
            async with asyncio.timeout(SECONDS):
                while (await said())[-1].value == lost:
                    await asyncio.sleep(0.5)
        finally:
            end(trainer)
        of_topic = ("--entity-type", "topics", "--entity-name", pointers, "--alter", "--add-config", SOON)
        await asyncio.to_thread(three.configure, *of_topic)
        async with connected(make_producer(three.address)) as producer, asyncio.timeout(COMPACTED_SECONDS):
            while len(await said()) > 1:
                await asyncio.sleep(2.0)
                await producer.send_and_wait(pointers, b"{}", key=b"of/nobody")  # only a full segment is compacted
        async with agent("late") as late:
            assert await early.caught_up(SECONDS)
            assert early.version == late.version == first[1].version
