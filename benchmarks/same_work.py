"""Compare a worker's stages with a script that does the same work by hand: `python -m benchmarks same_work`.

Both take the same records in turns, each pass in a separate process, and end with the same patterns, judgments and
items, or the run fails. The figure is the CPU of the stages, with the JSON that they hand each other, as a multiple of
the script's (`benchmarks/peers/by_hand_same.py`). Rows go into dictionaries and no broker is there: Faust, delivery and
the clients are not in it. The thermometer is `orjson.loads` over the same bytes in the same processes.
"""

from __future__ import annotations

import asyncio
import gc
import pickle
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from benchmarks import peers
from benchmarks.peers.by_hand_same import counted
from benchmarks.pipeline import BATCH_RECORDS, decode_once
from benchmarks.report import Report, Row
from benchmarks.traffic import TENANT, Sent, traffic
from fleetlore.clock import SystemClock
from fleetlore.config import Settings
from fleetlore.errors import StackError
from fleetlore.wire.events import BATCH_HEADERS
from fleetlore.wire.topics import topic
from sinks.metrics import Metrics
from sinks.producer import COMPACTED, json_arrays
from streams.offline.memory_pipeline import MemoryStore
from streams.stage.base import Record
from streams.stages.pipeline import pipeline

EVENTS = 60_000
QUICK_EVENTS = 4_000
PASSES = 3
BAR = 1.5
LOADS_BAR = 40.0
UNIT = "µs of CPU per event"
_HEADERS = dict(BATCH_HEADERS)
STAGES, BY_HAND = "benchmarks.same_work", "benchmarks.peers.by_hand_same"


def run(quick: bool) -> Report:
    """See the module.

    Raises:
        StackError: the two ended with different states.
    """
    sent = traffic(QUICK_EVENTS if quick else EVENTS)
    passes: dict[str, list[Any]] = {STAGES: [], BY_HAND: []}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records"
        file.write_bytes(pickle.dumps(sent.records))
        for _ in range(1 if quick else PASSES):
            for script, said in passes.items():
                said.append(peers.run(script, file))
    counts = [each["counts"] for said in passes.values() for each in said]
    if any(each != counts[0] for each in counts):
        raise StackError(f"the stages and the script by hand ended with different states: {counts}")
    stages, by_hand = ([each["cpu_seconds"] for each in said] for said in passes.values())
    loads = median(each["loads_seconds"] for said in passes.values() for each in said)
    ratios = [ours / theirs for ours, theirs in zip(stages, by_hand, strict=True)]
    figure, each_event = median(ratios), 1e6 / sent.events
    state = ", ".join(f"{count:,} {name}" for name, count in counts[0].items())
    rows = (
        Row("a worker's stages", median(stages) * each_event, UNIT, note=sent.describe()),
        Row("the same work by hand", median(by_hand) * each_event, UNIT, note=f"both: {state}"),
        Row("thermometer: orjson.loads", loads * each_event, UNIT, note="of the same bytes"),
        Row("least and most of the passes", min(ratios), "×", note=f"to {max(ratios):.2f}"),
    )
    also = (
        Report(
            "same_work in orjson.loads",
            median(stages) / loads,
            LOADS_BAR,
            "× orjson.loads of the same bytes",
            peers={"the same work by hand": median(by_hand) / loads},
            reference="the same work by hand",
            higher_is_better=False,
        ),
    )
    return Report(
        "same_work", figure, BAR, "× the CPU of the same work by hand", higher_is_better=False, rows=rows, also=also
    )


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


async def one_pass(file: Path) -> dict[str, Any]:
    """Take the records through all stages, to the last row."""
    records, flow = pickle.loads(file.read_bytes()), Flow()
    gc.collect()
    gc.freeze()
    cpu = time.process_time()
    for start in range(0, len(records), BATCH_RECORDS):
        await flow.work(records[start : start + BATCH_RECORDS])
    await flow.work([])  # a stage that gets nothing writes what waits
    spent = time.process_time() - cpu
    return {"cpu_seconds": spent, "loads_seconds": decode_once(records), "counts": counted(flow.store.collections)}


if __name__ == "__main__":
    print(orjson.dumps(asyncio.run(one_pass(Path(sys.argv[1])))).decode())
