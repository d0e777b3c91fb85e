"""Compare rows written to Milvus: `MilvusStore.upsert` against bare pymilvus with the same rows in the same batches.

The rows are those that the pipeline makes of logged runs: patterns, judgments and items with their real sizes. Both
write them to collections of one schema on one Milvus Lite server, a child process, in turns. Ours gets the rows as the
stages make them and computes the vectors; bare is `MilvusClient.upsert` with rows that are ready, vectors included. A
figure is the median of the rounds; every round writes rows of new ids. CPU is that of this process (client) and of the
server, by row.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pymilvus import MilvusClient

from benchmarks.cpu import cpu_by_role
from benchmarks.report import Report, Row
from benchmarks.traffic import TENANT, TOPIC, traffic
from fleetlore.clock import SystemClock
from fleetlore.config import Settings
from fleetlore.errors import StackError
from fleetlore.retrieval.encoder import StaticEncoder
from fleetlore.store.search import DIMENSIONS, TEXT, VECTOR
from fleetlore.wire.events import BATCH_HEADERS
from sinks.collections import COLLECTIONS, PLACEHOLDER, versioned_name
from sinks.metrics import Metrics
from sinks.milvus import MAX_ROWS_PER_CALL, MilvusStore
from streams.embedded.broker import free_port
from streams.offline.memory_pipeline import Chain, MemoryStore
from streams.stage.base import Record
from streams.stages.pipeline import pipeline

BATCHES = (100, MAX_ROWS_PER_CALL)
SHARE = 0.9
OURS, BARE = "fleetlore", "bare pymilvus"
START_SECONDS = 30.0

Rows = dict[str, list[dict[str, Any]]]
Write = Callable[[str, list[dict[str, Any]]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one round cost, per row: seconds of wall time, and of CPU here and in the server."""

    wall: float
    client: float
    server: float


def run(quick: bool) -> Report:
    """See the module."""
    rows, rounds = (_rows(2_000), 1) if quick else (_rows(15_000), 5)
    with milvus_server() as (uri):
        costs = asyncio.run(_measure(uri, rows, rounds))
    rate = {key: 1 / cost.wall for key, cost in costs.items()}
    largest = BATCHES[-1]
    count = sum(len(each) for each in rows.values())
    size = sum(len(row["body"]) + len(row["state"]) for each in rows.values() for row in each) / count
    table = []
    for (name, batch), cost in costs.items():
        note = f"batches of {batch:,}"
        table += [
            Row(name=name, figure=rate[name, batch], unit="rows/s", note=note),
            Row(name=f"{name}: client CPU", figure=cost.client * 1e6, unit="µs/row", note=note),
            Row(name=f"{name}: server CPU", figure=cost.server * 1e6, unit="µs/row", note=note),
        ]
    for batch in BATCHES:
        note = f"batches of {batch:,}"
        table.append(Row(name="ratio", figure=rate[OURS, batch] / rate[BARE, batch], unit="×", note=note))
    gain = rate[OURS, largest] / rate[OURS, BATCHES[0]]
    table += [
        Row(name="larger batches bring", figure=gain, unit="×", note=f"{BATCHES[0]:,} to {largest:,} rows"),
        Row(name="rows", figure=count, unit="rows", note=f"{size:,.0f} bytes of body and state a row, each round"),
    ]
    return Report(
        name="milvus",
        figure=rate[OURS, largest],
        bar=SHARE * rate[BARE, largest],
        unit="rows/s",
        peers={BARE: rate[BARE, largest]},
        reference=BARE,
        rows=tuple(table),
    )


def _rows(events: int) -> Rows:
    """What the pipeline makes of so many events, by collection."""
    store = MemoryStore()
    chain = Chain(pipeline(store, Metrics("benchmark"), SystemClock(), Settings(silent_seconds=3600.0)), store)
    headers = dict(BATCH_HEADERS)
    batch = [
        Record(TOPIC, sent.partition, offset, None, sent.value, headers)
        for offset, sent in enumerate(traffic(events).records)
    ]

    async def work() -> None:
        await chain.run(batch)
        await chain.settle()

    asyncio.run(work())
    return {name: list(rows.values()) for name, rows in store.collections.items()}


async def _measure(uri: str, rows: Rows, rounds: int) -> dict[tuple[str, int], Cost]:
    """Median costs by writer and batch size."""
    versions = {OURS: "ours", BARE: "bare"}
    client = await _opened(uri, versions.values())
    ready = _ready(rows)

    async def bare(collection: str, batch: list[dict[str, Any]]) -> None:
        await asyncio.to_thread(client.upsert, versioned_name(collection, versions[BARE]), batch)

    costs: dict[tuple[str, int], list[Cost]] = {}
    try:
        for round in range(rounds):
            for size in BATCHES:
                # A new encoder, so that no text is known yet.
                store = MilvusStore(uri, "", StaticEncoder(), Metrics("benchmark"), versions[OURS])
                await store.open()
                turns: list[tuple[str, Rows, Write]] = [(OURS, rows, store.upsert), (BARE, ready, bare)]
                for name, mine, write in turns if round % 2 else reversed(turns):
                    named = _renamed(mine, f"{round}-{size}")
                    costs.setdefault((name, size), []).append(await _round(named, size, write))
                await store.close()
    finally:
        client.close()
    return {
        key: Cost(*(statistics.median(getattr(each, part) for each in costs[key]) for part in Cost.__slots__))
        for key in ((name, size) for size in BATCHES for name in (OURS, BARE))
    }


async def _round(rows: Rows, size: int, write: Write) -> Cost:
    """Write all rows, one batch after the other."""
    count = sum(len(each) for each in rows.values())
    server, client, start = _server_cpu(), time.process_time(), time.perf_counter()
    for collection, all_rows in rows.items():
        for first in range(0, len(all_rows), size):
            await write(collection, all_rows[first : first + size])
    wall = time.perf_counter() - start
    return Cost(wall / count, (time.process_time() - client) / count, (_server_cpu() - server) / count)


def _renamed(rows: Rows, prefix: str) -> Rows:
    """The same rows under ids that were never written."""
    return {name: [{**row, "id": f"{row['id']}-{prefix}"} for row in each] for name, each in rows.items()}


def _ready(rows: Rows) -> Rows:
    """Rows as pymilvus takes them."""
    encoder = StaticEncoder()
    ready: Rows = {}
    for collection in COLLECTIONS:
        mine = rows[collection.name]
        texts = [row.get("text", "") for row in mine]
        vectors = encoder.encode(texts)[:, :DIMENSIONS].tolist() if collection.by_meaning else [PLACEHOLDER] * len(mine)
        ready[collection.name] = [
            {
                **{name: row[name] for name in ("id", "body", "state")},
                "tenant": TENANT,
                # Nothing in them is longer than its column.
                **{name: row.get(name) or "" for name, _ in collection.columns},
                **({TEXT: text} if collection.by_words else {}),
                **({VECTOR: vector} if collection.by_meaning or not collection.by_words else {}),
            }
            for row, text, vector in zip(mine, texts, vectors, strict=True)
        ]
    return ready


async def _opened(uri: str, versions: Iterable[str]) -> MilvusClient:
    """Collections for both writers."""
    for version in versions:
        store = MilvusStore(uri, "", StaticEncoder(), Metrics("benchmark"), version)
        await store.open()
        await store.close()
    return MilvusClient(uri=uri, timeout=30)


@contextlib.contextmanager
def milvus_server() -> Iterator[str]:
    """Milvus Lite as a child process, as soon as it listens: its address."""
    try:
        import milvus_lite  # noqa: F401
    except ImportError:
        raise StackError("Milvus Lite is missing; install `fleetlore-server[embedded]`") from None
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = ["server", "--data-dir", folder, "--host", "127.0.0.1", "--port", str(port)]
        server = subprocess.Popen(
            [sys.executable, "-m", "streams.embedded.milvus_server", *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_for(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(30)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise StackError(f"Milvus Lite does not listen after {START_SECONDS:.0f} s") from None
        time.sleep(0.05)


def _server_cpu() -> float:
    return cpu_by_role()["Milvus Lite"]
