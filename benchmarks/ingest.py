"""Measure what one worker process does with an event, and how fast: from the bytes of a record to a verdict.

*A worker's own work.* Records of logged runs, with up to 64 events each, go through one process on one thread. It
decodes, validates, redacts, recognises patterns, assembles sessions, encodes observations and trajectories, and judges.
There is no broker, and the store is empty. The figure is events per second of CPU (user and system): the median of
several passes, each in a new process. The rows show the same by the clock, and `orjson.loads` over the same bytes,
which is a lower bound for every reader of JSON. `benchmarks.same_work` measures all stages.

*The peer* is a bare aiokafka loop that only decodes the same records from a topic of the embedded broker. Our worker
reads the same topic and does all its work, without Milvus. Each runs alone in a process; the broker has the other core.

*The whole stack* is `benchmarks.stack`.
"""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import peers, stack
from benchmarks.embedded_broker import EmbeddedBroker
from benchmarks.report import Report, Row
from benchmarks.traffic import TOPIC, Traffic, publish, traffic

EVENTS = 120_000
QUICK_EVENTS = 4_000
PASSES = 3
BAR = 60_000.0
UNIT = "events per CPU second"
CPU_UNIT = "µs of CPU per event"

PEER = "aiokafka + orjson"


def run(quick: bool) -> Report:
    sent = traffic(QUICK_EVENTS if quick else EVENTS)
    own = _own_work(sent, 1 if quick else PASSES)
    figure = median(each["events"] / each["cpu_seconds"] for each in own)
    loads = median(each["loads_seconds"] for each in own)
    floor = beside(sent, "with_aiokafka", TOPIC, sent.events)
    worker = beside(sent, "benchmarks.worker", sent.events, "sessions,judgments")
    rows = [
        Row("fleetlore: from bytes to verdicts", figure, UNIT, note=sent.describe()),
        Row("the same by the clock", median(each["events"] / each["seconds"] for each in own), "events/s"),
        *_rates("fleetlore's worker on the broker, all work, without Milvus", worker),
        *_rates(f"{PEER}, decode only", floor),
        Row("physical limit: orjson.loads alone", loads / sent.events * 1e6, CPU_UNIT),
    ]
    rivals, also = {PEER: floor["events"] / floor["cpu_seconds"]}, (stack.run(quick),)
    return Report("ingest", figure, BAR, UNIT, rivals, reference=PEER, rows=tuple(rows), also=also)


def _own_work(sent: Traffic, passes: int) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records"
        file.write_bytes(pickle.dumps(sent.records))
        return [peers.run("benchmarks.pipeline", file) for _ in range(passes)]


def beside(sent: Traffic, script: str, *arguments: object) -> Any:
    """Start a new broker for each reader, so that none finds the broker's caches filled by another."""
    with EmbeddedBroker() as broker:
        publish(broker.address, sent.records)
        return peers.run(script, broker.address, *arguments)


def _rates(name: str, said: Any) -> tuple[Row, Row]:
    return (
        Row(name, said["events"] / said["cpu_seconds"], UNIT),
        Row(f"{name}, by the clock", said["events"] / said["seconds"], "events/s"),
    )
