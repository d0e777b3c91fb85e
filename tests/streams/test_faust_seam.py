"""The seam to Faust, on two brokers: what we take of its private parts still does what we rely on.

If one of these fails after an upgrade of Faust or aiokafka, then events would be lost or late: mend `streams/faust_seam.py`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as KafkaPartition

from fleetlore.offsets import observer
from streams.stage import TopicPartition

pytestmark = pytest.mark.timeout(120)

SCRIPT = Path(__file__).with_name("seam_worker.py")
PATIENCE_SECONDS = 40.0
FETCH_WAIT_MS = 37


class SeamWorker:
    """`seam_worker.py` as a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.facts: dict[str, Any] = {}

    async def line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE_SECONDS)
        assert line, "the worker ended"
        return dict(json.loads(line))

    async def records(self, count: int) -> list[tuple[int, str]]:
        """The next records: (offset, value)."""
        found: list[tuple[int, str]] = []
        while len(found) < count:
            line = await self.line()
            if "offset" in line:
                found.append((line["offset"], line["value"]))
            else:
                self.facts |= line
        return found

    async def commit(self, offset: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"commit 0 {offset}\n".encode())
        await self._process.stdin.drain()
        while "committed" not in (line := await self.line()):
            self.facts |= line
        assert line["committed"] is True

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()


@asynccontextmanager
async def seam_worker(bootstrap: str, topic: str, group: str) -> AsyncIterator[SeamWorker]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SCRIPT),
        bootstrap,
        topic,
        group,
        str(FETCH_WAIT_MS),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=SCRIPT.parents[2],
    )
    worker = SeamWorker(process)
    try:
        yield worker
    finally:
        await worker.kill()


async def committed(bootstrap: str, topic: str, group: str) -> int | None:
    async with observer(bootstrap, group) as consumer:
        offset: int | None = await consumer.committed(KafkaPartition(topic, 0))
        return offset


async def produce(bootstrap: str, topic: str, numbers: range) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in numbers:
            await producer.send_and_wait(topic, str(number).encode(), partition=0)


@pytest.mark.parametrize("cluster", ["tansu", "librdkafka's mock"])
async def test_offsets_are_committed_as_told_and_a_killed_worker_resumes_there(
    cluster: str, request: pytest.FixtureRequest, make_topics: Any, tenant: str
) -> None:
    if cluster == "tansu":
        bootstrap = request.getfixturevalue("broker").address
        await make_topics(bootstrap, tenant, "events", partitions=1)
    else:
        bootstrap = request.getfixturevalue("mock_cluster")
    topic, group = f"fleetlore.{tenant}.events", f"seam-{uuid.uuid4().hex[:8]}"
    await produce(bootstrap, topic, range(20))

    async with seam_worker(bootstrap, topic, group) as worker:
        assert await worker.records(20) == [(number, str(number)) for number in range(20)]
        assert worker.facts["fetch_wait_ms"] == FETCH_WAIT_MS
        # A second round through the stream: Faust's own commit (every 0.1 s) has had its chance when it is through.
        for start in range(20, 26):
            await produce(bootstrap, topic, range(start, start + 1))
            assert await worker.records(1) == [(start, str(start))]
            await asyncio.sleep(0.1)
        assert not await committed(bootstrap, topic, group), "Faust has committed by itself"
        await worker.commit(7)
        assert await committed(bootstrap, topic, group) == 7
        await worker.commit(12)
        await produce(bootstrap, topic, range(26, 27))
        assert await worker.records(1) == [(26, "26")]
        assert await committed(bootstrap, topic, group) == 12
        await worker.kill()

    async with seam_worker(bootstrap, topic, group) as worker:
        assert await worker.records(15) == [(number, str(number)) for number in range(12, 27)]
        assert await committed(bootstrap, topic, group) == 12


def test_our_partitions_are_equal_to_fausts() -> None:
    """High watermarks and commits are looked up in dictionaries that are keyed by either."""
    from faust.types import TP

    assert {TP("t", 1): 5} == {TopicPartition("t", 1): 5}
    assert hash(TP("t", 1)) == hash(TopicPartition("t", 1))


def test_faust_still_has_the_parts_that_the_seam_takes_hold_of() -> None:
    from faust.transport.consumer import Consumer as BaseConsumer
    from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport

    assert callable(AIOKafkaConsumerThread._create_worker_consumer)
    assert callable(Consumer._new_consumer_thread)
    assert callable(BaseConsumer._commit)
    assert issubclass(Transport.Consumer, BaseConsumer)
