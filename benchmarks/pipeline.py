"""Measure a worker's own work without broker and Milvus: `python -m benchmarks.pipeline FILE MODE`.

FILE is a pickled list of `Sent`. MODE is `verdicts` (from record bytes to verdicts) or `whole` (to judgments and what
they teach). The output is one JSON line with the CPU and wall seconds of one pass. Each pass is a separate process: a
second pass over the same texts would find them in the caches.
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
from streams.stages.s3_judgments import JudgmentsStage

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
    """The stages `sessions` and `judgments`, and between them values packed into records as the producer packs them.

    Args:
        whole: run the whole stage `judgments`; otherwise end with the verdict.
    """

    def __init__(self, whole: bool) -> None:
        metrics, store = Metrics("worker"), EmptyStore()
        self._whole = whole
        self._sessions = SessionsStage(store, SystemClock(), metrics, SILENT_SECONDS)
        self._trajectories: Values[Trajectory | Feedback] = Values(Trajectory | Feedback)
        self._judge = JudgeChain()
        self._judgments = JudgmentsStage(store, self._judge, metrics)
        self._offset = 0
        self.processed = 0
        self.judged = 0
        self.dead_letters = 0

    async def work(self, batch: Sequence[Record]) -> None:
        """Records of `events` in; observations and trajectories out, and verdicts, or judgments and what they teach."""
        effects = await self._sessions.process(batch)
        self.processed += effects.processed
        self.dead_letters += len(effects.dead_letters)
        by_topic: dict[str, list[bytes]] = {}
        for outgoing in effects.outgoing:
            if outgoing.value is not None:
                by_topic.setdefault(outgoing.topic, []).append(outgoing.value)
        packed = {name: list(json_arrays(values)) for name, values in by_topic.items()}
        name = topic(TENANT, "trajectories")
        closed = [Record(name, 0, self._next(), None, value, {}) for value in packed.get("trajectories", ())]
        if not self._whole:
            for _, value in self._trajectories.read(closed, Effects()):
                if isinstance(value, Trajectory):
                    self._judge.judge(value)
                    self.judged += 1
        elif closed:
            judged = await self._judgments.process(closed)
            self.judged += judged.processed
            list(json_arrays([each.value for each in judged.outgoing if each.value is not None]))

    def _next(self) -> int:
        self._offset += 1
        return self._offset


def batches(records: Sequence[Sent]) -> Iterator[list[Record]]:
    """Yield batches as they would come from the broker."""
    offsets: dict[int, int] = {}
    for start in range(0, len(records), BATCH_RECORDS):
        batch = []
        for sent in records[start : start + BATCH_RECORDS]:
            offset = offsets[sent.partition] = offsets.get(sent.partition, -1) + 1
            batch.append(Record(TOPIC, sent.partition, offset, None, sent.value, _HEADERS))
        yield batch


async def run_once(records: Sequence[Sent], whole: bool) -> dict[str, float]:
    """Run one pass with a new worker's stages; batches are made before the clocks start."""
    pipeline, made = Pipeline(whole), list(batches(records))
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


def main(file: Path, mode: str) -> None:
    records: list[Sent] = pickle.loads(file.read_bytes())
    said = asyncio.run(run_once(records, whole=mode != "verdicts"))
    print(orjson.dumps(said | {"loads_seconds": decode_once(records)}).decode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
