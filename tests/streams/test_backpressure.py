"""A slow Milvus pauses partitions and bounds memory: a million events through a worker that Milvus holds back.

`CHAOS_PAGE=docs/results/chaos.md pytest -m slow tests/streams/test_backpressure.py -s` prints the table and writes it
there.
"""

import asyncio
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.cloudevents import encode_record
from benchmarks.rollouts import logged, rollouts
from fleetlore.wire.events import BATCH_HEADERS, MAX_EVENTS, Event
from fleetlore.wire.topics import topic
from tests.chaos.accounting import put_table
from tests.doubles.proxy import Proxy
from tests.streams.broker_pipeline import LonePipeline, StartWorker

EVENTS = 1_000_000
ROWS = 25  # of the table
PARTITIONS = 2
DELAY_SECONDS = 0.02  # for each 64 KiB on their way to Milvus
SESSIONS = 300  # that are different; the others repeat what these did under other names
# What may be added in the second half. In the first, everything is loaded and the caches, all of bounded size, fill up.
MOST_GROWTH_BYTES = 64 * 1024 * 1024


def records(tenant: str) -> Iterator[tuple[int, int, bytes]]:
    """Yield (partition, events, value) of full records without end; encoding a million events takes too long."""
    chunks: list[tuple[int, bytes]] = []
    chunk: list[Event] = []
    for number, run in enumerate(rollouts(3, SESSIONS)):
        for sequence, (kind, data) in enumerate(logged(run).all_events()):
            chunk.append(Event(kind, tenant, run["agent"], f"S0000{number:04}", sequence, 1_760_000_000.0, data))
            if len(chunk) == MAX_EVENTS:
                chunks.append((len(chunk), encode_record(chunk)))
                chunk = []
    chunks.append((len(chunk), encode_record(chunk)))
    for lap in count():
        for events, value in chunks:
            # Another lap, other sessions: `S00000012` becomes `S01230012`.
            yield lap % PARTITIONS, events, value.replace(b"S0000", b"S%04d" % lap)


def rss_bytes(guard: subprocess.Popen[bytes]) -> int:
    [worker] = Path(f"/proc/{guard.pid}/task/{guard.pid}/children").read_text().split()
    pages = int(Path(f"/proc/{worker}/statm").read_text().split()[1])
    return pages * 4096


def figures(port: int) -> dict[str, float]:
    """Sums of the metrics over their labels, for the first stage and the topic it reads."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=120) as page:
        families = text_string_to_metric_families(page.read().decode())
    found: dict[str, float] = {}
    for family in families:
        for sample in family.samples:
            other_stage = sample.labels.get("stage", "sessions") != "sessions"
            if other_stage or not sample.labels.get("topic", "events").endswith("events"):
                continue
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


@pytest.mark.slow
@pytest.mark.timeout(1_800)
async def test_memory_stays_flat_over_a_million_events(
    lone_pipeline: LonePipeline, proxy: Proxy, start_worker: StartWorker
) -> None:
    pipeline = await lone_pipeline(f"http://{proxy.address}", drain_seconds=2.0)
    name, settings = topic(pipeline.tenant, "events"), pipeline.settings
    async with AIOKafkaProducer(bootstrap_servers=settings.broker, max_request_size=2**20, acks="all") as producer:
        waiting, sent = [], 0
        for partition, events, value in records(pipeline.tenant):
            waiting.append(await producer.send(name, value, partition=partition, headers=BATCH_HEADERS))
            sent += events
            if sent >= EVENTS:
                break
        await asyncio.gather(*waiting)
    proxy.delay_seconds = DELAY_SECONDS
    worker = await asyncio.to_thread(start_worker, settings)

    table: list[tuple[int, int, int, int]] = []
    most_paused = 0.0
    done = 0.0
    while done < sent:
        now = await asyncio.to_thread(figures, settings.metrics_port)
        done = now.get("fleetlore_processed_events_total", 0.0)
        most_paused = max(most_paused, now["fleetlore_paused_partitions"])
        if done >= len(table) * EVENTS / ROWS:
            lag = now.get("fleetlore_consumer_lag_records", 0.0)
            table.append((int(done), rss_bytes(worker) >> 20, int(now["fleetlore_paused_partitions"]), int(lag)))
        await asyncio.sleep(0.2)
    table.append((int(done), rss_bytes(worker) >> 20, int(now["fleetlore_paused_partitions"]), 0))

    lines = ["| events | RSS, MiB | partitions paused | lag, records |", "| ---: | ---: | ---: | ---: |"]
    lines += ["| {:,} | {} | {} | {:,} |".format(*row) for row in (*table[:-1:3], table[-1])]
    print("\n", "\n".join(lines), sep="")
    if page := os.environ.get("CHAOS_PAGE"):
        put_table(Path(page), "slow Milvus", lines)
    assert await pipeline.dead_letters() == []
    assert most_paused > 0, "Milvus was not slow enough"
    half = next(rss for events, rss, _, _ in table if events >= EVENTS / 2)
    assert max(rss for events, rss, _, _ in table if events >= EVENTS / 2) <= half + (MOST_GROWTH_BYTES >> 20), table
