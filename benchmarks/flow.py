"""Run all stages of a worker in memory, without a broker: rows go into dictionaries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from benchmarks.traffic import TENANT, Sent
from fleetlore.clock import SystemClock
from fleetlore.config import Settings
from fleetlore.wire.events import BATCH_HEADERS
from fleetlore.wire.topics import topic
from sinks.metrics import Metrics
from sinks.producer import COMPACTED, json_arrays
from streams.offline.memory_pipeline import MemoryStore
from streams.stage.base import Record
from streams.stages.pipeline import pipeline

_HEADERS = dict(BATCH_HEADERS)


class Flow:
    """All stages, one after the other, of one worker."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self._stages = pipeline(self.store, Metrics("worker"), SystemClock(), Settings(silent_seconds=3600.0))
        self._offset = 0

    async def work(self, records: Sequence[Sent]) -> None:
        """One batch of events, through to the end."""
        waiting: dict[str, list[Record]] = defaultdict(list)
        waiting["events"] = [self._record("events", sent.partition, sent.value) for sent in records]
        for stage in self._stages:
            effects = await stage.process(waiting.pop(stage.reads, []))
            for collection, rows in effects.rows.items():
                await self.store.upsert(collection, rows)
            if effects.acknowledged is not None:
                effects.acknowledged()
            shared: dict[str, list[bytes]] = defaultdict(list)
            for each in effects.outgoing:
                if each.value is not None and each.topic not in COMPACTED:
                    shared[each.topic].append(each.value)
            for name, values in shared.items():
                waiting[name] += [self._record(name, 0, value) for value in json_arrays(values)]

    def _record(self, name: str, partition: int, value: bytes) -> Record:
        self._offset += 1
        return Record(topic(TENANT, name), partition, self._offset, None, value, _HEADERS)
