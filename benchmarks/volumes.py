"""Count what an event makes, for the inputs of `docs/results/scale.md`: `python -m benchmarks.volumes`.

Logged runs go through all stages in memory, in batches as a worker would take them, into a dictionary instead of
Milvus. What is counted are the stages' own effects: values and bytes by topic, rows and bytes by collection.
"""

from __future__ import annotations

import asyncio
import sys
import time
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import cramjam

from benchmarks.traffic import TENANT, Sent, traffic
from fleetlore.clock import Clock, SystemClock
from fleetlore.config import Settings
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.events import BATCH_HEADERS
from fleetlore.wire.lore import Pattern
from fleetlore.wire.topics import topic
from sinks.metrics import Metrics
from sinks.producer import COMPACTED, json_arrays
from streams.offline.memory_pipeline import MemoryStore
from streams.stage.base import Record
from streams.stages.pipeline import pipeline

EVENTS = 200_000
BATCH_RECORDS = 64
SAMPLE = 400
_HEADERS = dict(BATCH_HEADERS)


class CountingStore(MemoryStore):
    """Counts the rows written by collection, each as often as it is written."""

    def __init__(self) -> None:
        super().__init__()
        self.upserts: Counter[str] = Counter()

    async def upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None:
        self.upserts[collection] += len(rows)
        await super().upsert(collection, rows)


class Flow:
    """All stages, one after the other. `hear` is told the topic, key and value of what goes out of them."""

    def __init__(
        self, clock: Clock | None = None, hear: Callable[[str, str, bytes | None], None] | None = None
    ) -> None:
        self._hear = hear
        self.store = CountingStore()
        self.values: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.cpu_seconds: dict[str, float] = defaultdict(float)
        self._stages = pipeline(self.store, Metrics("worker"), clock or SystemClock(), Settings(silent_seconds=3600.0))
        self._offset = 0

    async def work(self, records: Sequence[Sent]) -> None:
        """One batch of events, through to the end."""
        await self.work_of([(TENANT, sent) for sent in records])

    async def work_of(self, records: Sequence[tuple[str, Sent]]) -> None:
        """One batch of events, each record with its tenant."""
        waiting: dict[str, list[Record]] = defaultdict(list)
        names = {tenant: topic(tenant, "events") for tenant in {tenant for tenant, _ in records}}
        waiting["events"] = [self._record(names[tenant], sent.partition, sent.value) for tenant, sent in records]
        for stage in self._stages:
            before = time.process_time()
            effects = await stage.process(waiting.pop(stage.reads, []))
            self.cpu_seconds[stage.name] += time.process_time() - before
            for collection, rows in effects.rows.items():
                await self.store.upsert(collection, rows)
            if effects.acknowledged is not None:
                effects.acknowledged()
            shared: dict[tuple[str, str], list[bytes]] = defaultdict(list)
            for each in effects.outgoing:
                self.values[each.topic] += 1
                if self._hear is not None:
                    self._hear(each.topic, each.key, each.value)
                self.bytes[each.topic] += len(each.value or b"") + (len(each.key) if each.topic in COMPACTED else 1)
                if each.value is not None and each.topic not in COMPACTED:
                    shared[each.tenant, each.topic].append(each.value)
            for (tenant, name), values in shared.items():
                waiting[name] += [self._record(topic(tenant, name), 0, value) for value in json_arrays(values)]

    def _record(self, name: str, partition: int, value: bytes) -> Record:
        self._offset += 1
        return Record(name, partition, self._offset, None, value, _HEADERS)


def packed(records: Sequence[Sent], events_per_record: int) -> float:
    """Bytes of an event in a record of so many, compressed with zstd."""
    full = [record for record in records if record.events >= events_per_record]
    chosen = Random(0).sample(full, min(SAMPLE, len(full)))
    events = sum(record.events for record in chosen)
    return sum(len(bytes(cramjam.zstd.compress(record.value, level=3))) for record in chosen) / events


def replica_bytes(rows: Sequence[dict[str, Any]]) -> float:
    """Memory of an agent's replica for one pattern, from the bytes of the topic to the index."""
    bodies = [row["body"].encode() for row in rows]
    tracemalloc.start()
    index = LoreIndex()
    for body in bodies:
        index.put_pattern(Pattern.from_json(body))
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return taken / len(bodies)


async def main(events: int) -> None:
    sent = traffic(events)
    print(sent.describe())
    flow, seen = Flow(), 0
    marks = {int(sent.events * share) for share in (0.1, 0.25, 0.5)}
    for start in range(0, len(sent.records), BATCH_RECORDS):
        batch = sent.records[start : start + BATCH_RECORDS]
        await flow.work(batch)
        for mark in [each for each in marks if each <= seen + sum(record.events for record in batch)]:
            marks.remove(mark)
            print(f"after {mark} events: {_sizes(flow.store)}")
        seen += sum(record.events for record in batch)
    print(f"after {seen} events: {_sizes(flow.store)}")
    for name, seconds in flow.cpu_seconds.items():
        print(f"stage {name}: {seconds / seen * 1e6:.1f} µs of CPU an event")
    print(f"events: {sent.bytes / seen:.0f} bytes each")
    for each in (1, 8, 64):
        records = sent.records if each == 64 else traffic(20_000, each).records
        print(f"  {packed(records, each):.0f} bytes compressed with zstd, in records of {each}")
    for name, count in flow.values.items():
        print(f"{name}: {count / seen:.4f} values an event, {flow.bytes[name] / count:.0f} bytes each")
    for collection, rows in flow.store.collections.items():
        sizes = [sum(len(row.get(part, "")) for part in ("body", "state", "text")) for row in rows.values()]
        size = sum(sizes) / len(sizes)
        print(
            f"{collection}: {flow.store.upserts[collection] / seen:.4f} rows written an event, {size:.0f} bytes each "
            f"before packing"
        )
    patterns = list(flow.store.collections["patterns"].values())
    print(f"replica: {replica_bytes(patterns):.0f} bytes of memory a pattern")


def _sizes(store: CountingStore) -> str:
    return ", ".join(f"{len(rows)} {name}" for name, rows in store.collections.items())


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS))
