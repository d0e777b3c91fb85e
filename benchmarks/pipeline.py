"""Measure a worker's own work without broker and Milvus: `python -m benchmarks.pipeline FILE`.

FILE is a pickled list of `Sent`. The output is one JSON line with the CPU and wall seconds of one pass, from the bytes
of records to verdicts. Each pass is a separate process, because a second pass would find the same texts in the caches.
"""

from __future__ import annotations

import asyncio
import gc
import pickle
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from benchmarks.traffic import TENANT, TOPIC, Sent
from fleetlore.clock import SystemClock
from fleetlore.wire.events import BATCH_HEADERS
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Feedback, Trajectory
from models.judge import JudgeChain
from sinks.metrics import Metrics
from sinks.producer import json_arrays
from streams.stage.base import Effects, Record, Values
from streams.stages.s1_sessions.stage import SessionsStage

# The batch of a worker with a backlog of full records.
BATCH_RECORDS = 64
SILENT_SECONDS = 3600.0
_HEADERS = dict(BATCH_HEADERS)


class EmptyStore:
    """A store that knows of no session yet and keeps none, as it is for a session that closes once."""

    async def open_within(self, *_: object) -> None:
        return None

    async def close(self) -> None:
        return None

    async def resolve(self, collection: str) -> str:
        return collection

    async def upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None:
        return None

    async def delete(self, collection: str, ids: Sequence[str]) -> None:
        return None

    async def get(self, collection: str, ids: Sequence[str], *fields: str) -> dict[str, dict[str, Any]]:
        return {}

    async def rows(self, collection: str, tenant: str, *fields: str, **equal: str) -> AsyncIterator[dict[str, Any]]:
        none: tuple[dict[str, Any], ...] = ()
        for row in none:
            yield row


class Pipeline:
    """The stage `sessions` and the judges, and between them values packed into records as the producer packs them."""

    def __init__(self) -> None:
        self._sessions = SessionsStage(EmptyStore(), SystemClock(), Metrics("worker"), SILENT_SECONDS)
        self._trajectories: Values[Trajectory | Feedback] = Values(Trajectory | Feedback)
        self._judge = JudgeChain()
        self.processed = 0
        self.judged = 0
        self.dead_letters = 0

    async def work(self, batch: Sequence[Record]) -> None:
        """Records of `events` in; observations, trajectories and verdicts out."""
        effects = await self._sessions.process(batch)
        self.processed += effects.processed
        self.dead_letters += len(effects.dead_letters)
        by_topic: dict[str, list[bytes]] = {}
        for outgoing in effects.outgoing:
            if outgoing.value is not None:
                by_topic.setdefault(outgoing.topic, []).append(outgoing.value)
        packed = {name: list(json_arrays(values)) for name, values in by_topic.items()}
        name = topic(TENANT, "trajectories")
        closed = [Record(name, 0, 0, None, value, {}) for value in packed.get("trajectories", ())]
        for _, value in self._trajectories.read(closed, Effects()):
            if isinstance(value, Trajectory):
                self._judge.judge(value)
                self.judged += 1


def batches(records: Sequence[Sent]) -> Iterator[list[Record]]:
    """Yield batches as they would come from the broker."""
    offsets: dict[int, int] = {}
    for start in range(0, len(records), BATCH_RECORDS):
        batch = []
        for sent in records[start : start + BATCH_RECORDS]:
            offset = offsets[sent.partition] = offsets.get(sent.partition, -1) + 1
            batch.append(Record(TOPIC, sent.partition, offset, None, sent.value, _HEADERS))
        yield batch


async def run_once(records: Sequence[Sent]) -> dict[str, float]:
    """Run one pass with a new worker's stages; batches are made before the clocks start."""
    pipeline, made = Pipeline(), list(batches(records))
    gc.collect()
    gc.freeze()  # as the worker does
    cpu, wall = time.process_time(), time.perf_counter()
    for batch in made:
        await pipeline.work(batch)
    return {
        "cpu_seconds": time.process_time() - cpu,
        "seconds": time.perf_counter() - wall,
        "events": float(pipeline.processed),
        "judged": float(pipeline.judged),
        "dead_letters": float(pipeline.dead_letters),
    }


def decode_once(records: Sequence[Sent]) -> float:
    """Return the CPU seconds of `orjson.loads` over the same bytes: reading JSON cannot be cheaper."""
    gc.collect()
    cpu = time.process_time()
    for record in records:
        orjson.loads(record.value)
    return time.process_time() - cpu


def main(file: Path) -> None:
    records: list[Sent] = pickle.loads(file.read_bytes())
    said = asyncio.run(run_once(records))
    print(orjson.dumps(said | {"loads_seconds": decode_once(records)}).decode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
