"""Run the pipeline as a worker process on a real broker and Milvus, behind the same interface as the one in memory."""

import asyncio
import subprocess
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiokafka import AIOKafkaProducer
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.cloudevents import encode_record
from benchmarks.replay import Knowledge, read_knowledge
from fleetlore.config import Settings
from fleetlore.kafka.read import end_offsets, observer, partitions_of, read_to_end
from fleetlore.recall.encoder import StaticEncoder
from fleetlore.wire.events import BATCH_HEADERS, Event
from fleetlore.wire.topics import partition_for, topic
from sinks.milvus import MilvusStore
from streams.offline.operator_word import wait_drained
from tests.streams.log_pipeline import BASE_TIME, PARTITIONS, DeadLetter, Story, in_order, records_of

DRAIN_SECONDS = 240.0

# Types of the fixtures of `conftest.py`.
Reference = Callable[[str, Sequence[Event]], Awaitable[Knowledge]]
StartWorker = Callable[[Settings], subprocess.Popen[bytes]]
LonePipeline = Callable[..., Awaitable["BrokerPipeline"]]


async def known(milvus: str, tenant: str) -> Knowledge:
    """What a store knows of a tenant."""
    async with MilvusStore(milvus, "", StaticEncoder()) as store:
        return await read_knowledge(store, tenant)


@dataclass(slots=True)
class Server:
    """A broker, Milvus and one worker process that serves a list of tenants; a test takes one."""

    settings: Settings
    metrics_url: str
    store: MilvusStore
    tenants: Iterator[str] = field(init=False)

    def __post_init__(self) -> None:
        self.tenants = iter(self.settings.tenants)


class BrokerPipeline:
    """One tenant of a running server."""

    real = True

    def __init__(self, server: Server) -> None:
        self.tenant = next(server.tenants)
        self.story = Story(self.tenant)
        self.settings = server.settings
        self._server = server
        self._producer: AIOKafkaProducer | None = None

    async def start(self) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self.settings.broker, acks="all", max_request_size=16 * 1024 * 1024
        )
        await self._producer.start()

    async def stop(self) -> None:
        if self._producer is not None:
            await self._producer.stop()

    async def send(self, events: Sequence[Event], per_record: int = 1) -> None:
        assert self._producer is not None
        sent = [
            await self._producer.send(name, encode_record(chunk), key=key, partition=partition, headers=BATCH_HEADERS)
            for name, key, partition, chunk in records_of(self.tenant, events, per_record)
        ]
        await asyncio.gather(*sent)

    async def take(self, events: Sequence[Event], per_record: int = 1) -> None:
        """Send events and wait until all are worked in."""
        await self.send(events, per_record)
        await self.drain()

    async def send_raw(
        self, value: bytes, key: bytes | None = b"raw", headers: Sequence[tuple[str, bytes | None]] = (), **options: Any
    ) -> None:
        assert self._producer is not None
        name = topic(self.tenant, "events")
        await self._producer.send_and_wait(name, value, key=key, headers=list(headers), **options)

    async def drain(self) -> None:
        await wait_drained(self.settings, self.tenant, DRAIN_SECONDS)

    async def work(self) -> None:
        """Until everything was read, where an open session holds the commit back: a session sent last has been judged.

        And until what was observed is stored, which a known pattern waits for.
        """
        fence = [self.story.session(f"fence-{n}", task="", start=BASE_TIME) for n in range(20)]
        by_partition = {partition_for(each[0].session, PARTITIONS): each for each in fence}
        before = len((await self.knowledge()).judgments)
        for each in by_partition.values():
            await self.send(each)
        async with asyncio.timeout(DRAIN_SECONDS):
            while len((await self.knowledge()).judgments) < before + len(by_partition):
                await asyncio.sleep(0.1)
            while any(committed < end for committed, end in (await self.committed_offsets("observations")).values()):
                await asyncio.sleep(0.1)

    async def knowledge(self) -> Knowledge:
        return in_order(await read_knowledge(self._server.store, self.tenant))

    async def bodies(self, collection: str) -> list[dict[str, Any]]:
        rows = self._server.store.rows(collection, self.tenant, "body")
        return [orjson.loads(row["body"]) async for row in rows if row["body"]]

    async def dead_letters(self) -> list[DeadLetter]:
        records = await read_to_end(self.settings.broker, [topic(self.tenant, "dead-letters")], DRAIN_SECONDS)
        return [
            ({name: (value or b"").decode("utf-8", "replace") for name, value in each.headers}, each.value)
            for each in records
        ]

    async def metric(self, name: str, **labels: str) -> float:
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(f"{self._server.metrics_url}/metrics").read())
        return sum(
            sample.value
            for family in text_string_to_metric_families(text.decode())
            for sample in family.samples
            if sample.name == name and sample.labels == labels
        )

    async def committed_offsets(self, name: str) -> dict[int, tuple[int, int]]:
        async with observer(self.settings.broker, self.settings.group) as consumer:
            ends = await end_offsets(consumer, await partitions_of(consumer, topic(self.tenant, name)))
            return {tp.partition: (await consumer.committed(tp) or 0, end) for tp, end in ends.items()}
