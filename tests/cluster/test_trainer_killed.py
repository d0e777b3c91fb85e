"""A trainer that is killed between its record and the confirmation leaves no fleet on two versions."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fleetlore.adapters.signatures import create_signing_key, public_keys
from fleetlore.adapters.subscriber import AdapterSubscriber
from fleetlore.config import Settings
from fleetlore.kafka.client import connected, make_producer
from fleetlore.kafka.read import read_to_end
from fleetlore.wire.adapter_manifest import LanguageModelManifest
from fleetlore.wire.topics import topic
from sinks.adapter_publisher import AdapterPublisher
from sinks.topics import ensure_topics
from tests.cluster.kafka_cluster import KafkaCluster
from tests.cluster.test_compaction import COMPACTED_SECONDS, SOON
from tests.doubles.weights_slot import WeightsSlot
from tests.random_adapters import version_of
from tests.streams.conftest import worker_environ

SECONDS = 120.0
# Decides, waits, and never looks whether its record came first.
KILLED = """
import asyncio, sys
from tests.random_adapters import version_of
from fleetlore.config import Settings
from fleetlore.wire.adapter_manifest import LanguageModelManifest
from sinks.adapter_publisher import AdapterPublisher

class Killed(AdapterPublisher):
    async def _send(self, tenant, key, value):
        await super()._send(tenant, key, value)
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
async def test_agents_old_and_new_run_one_version_though_the_log_is_compacted(
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
    name = topic(tenant, "adapters")
    first, second = (version_of(LanguageModelManifest, n, tenant, ordinal=n, created=float(n)) for n in (1, 2))

    async def sent() -> list[bytes]:
        """The keys of versions on the log, in order."""
        records = await read_to_end(three.address, [name], SECONDS)
        return [each.key for each in records if each.key.startswith(b"llm/")]

    @asynccontextmanager
    async def agent(who: str) -> AsyncIterator[AdapterSubscriber[LanguageModelManifest]]:
        subscriber = AdapterSubscriber(three.address, tenant, who, public_keys(key.public_base64), WeightsSlot())
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
        killed.stdin.write(b"\n")
        killed.stdin.flush()
        assert await asyncio.to_thread(killed.stdout.readline) == b"sent\n"
        killed.kill()
        killed.communicate()
        of_topic = ("--entity-type", "topics", "--entity-name", name, "--alter", "--add-config", SOON)
        await asyncio.to_thread(three.configure, *of_topic)
        async with connected(make_producer(three.address)) as producer, asyncio.timeout(COMPACTED_SECONDS):
            while len(keys := await sent()) > len(set(keys)):
                await asyncio.sleep(2.0)
                await producer.send_and_wait(name, b"{}", key=b"of/nobody")  # only a full segment is compacted
        third = version_of(LanguageModelManifest, 3, tenant, ordinal=3, created=3.0)[1].version
        assert keys[-1] == f"llm/{third}".encode(), "the newest record is the one that no agent follows"
        async with agent("late") as late:
            assert await early.caught_up(SECONDS)
            assert early.version == late.version == first[1].version
