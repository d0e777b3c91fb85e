"""The breaker in a real worker: it stops, stops again where it stopped, and goes on once that is allowed."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from benchmarks.embedded_broker import EmbeddedBroker
from fleetlore.config import Settings
from fleetlore.kafka.read import end_offsets, observer, partitions_of, read_dead_letters
from fleetlore.wire.topics import topic
from sinks.topics import ensure_topics

GARBAGE = 150
GARBAGE_OF = (b'{"agent":"alice"}', b'{"agent":"bob"}')
EXIT_SECONDS = 120.0


@pytest.fixture
async def settings(broker: EmbeddedBroker, milvus: str, tenant: str) -> AsyncIterator[Settings]:
    """A tenant with nothing but garbage in its log, sent in records of their own."""
    made = Settings(
        broker=broker.address,
        milvus=milvus,
        group=tenant,
        tenants=(tenant,),
        partitions=1,
        session_timeout_seconds=6.0,
        breaker_run_records=GARBAGE - 20,
    )
    await ensure_topics(made)
    began = time.time() - 2 * GARBAGE
    async with AIOKafkaProducer(bootstrap_servers=broker.address) as producer:
        for number in range(GARBAGE):
            # The embedded broker keeps the producer's time, so two seconds pass from one record to the next.
            stamp = int(1000 * (began + 2 * number))
            value = GARBAGE_OF[number % 2]
            await producer.send_and_wait(topic(tenant, "events"), value, partition=0, timestamp_ms=stamp)
    yield made


async def committed(settings: Settings) -> int:
    async with observer(settings.broker, settings.group) as consumer:
        [partition] = await partitions_of(consumer, topic(settings.tenants[0], "events"))
        return await consumer.committed(partition) or 0


async def letters(settings: Settings) -> int:
    return len([each async for each in read_dead_letters(settings.broker, settings.tenants[0], 10)])


def worker(settings: Settings, log: Path) -> subprocess.Popen[bytes]:
    environ = {name: value for name, value in settings.to_env().items() if value}
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "streams.embedded.supervisor", sys.executable, "-m", "fleetlore.cli.main", "worker"],
            stdin=subprocess.PIPE,
            stderr=output,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environ},
            start_new_session=True,
        )


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + EXIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_a_worker_stops_at_garbage_and_again_and_goes_on_when_it_may(settings: Settings, tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    for _ in range(2):
        child = worker(settings, log)
        await until(lambda child=child: child.poll() is not None)
        assert child.stdin is not None
        child.stdin.close()
        assert child.returncode == 1, log.read_text()
        said = log.read_text()
        assert "records were refused, every one of them (" in said
        assert topic(settings.tenants[0], "events") in said and "FLEETLORE_BREAKER_RUN_RECORDS" in said
        assert await committed(settings) == 0

    child = worker(settings.with_(breaker_run_records=10 * GARBAGE), log)
    try:
        async with asyncio.timeout(EXIT_SECONDS), observer(settings.broker) as consumer:
            partitions = await partitions_of(consumer, topic(settings.tenants[0], "events"))
            end = sum((await end_offsets(consumer, partitions)).values())
            while await committed(settings) < end:
                await asyncio.sleep(0.2)
        assert await letters(settings) >= GARBAGE
    finally:
        child.terminate()
        await until(lambda: child.poll() is not None)
        assert child.stdin is not None
        child.stdin.close()
    assert child.returncode == 0, log.read_text()
