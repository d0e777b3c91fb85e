"""Measure what one worker process does with an event, and how fast: from the bytes of a record to a verdict.

*A worker's own work.* Records of logged runs, up to 64 events each as the emitter fills them, go through one process on
one
thread: decode, validate, redact, recognise patterns, put sessions together, count and encode observations, close,
encode trajectories, decode them again as the next stage does, and judge. No broker, and a store that is empty. The
figure is events per second of CPU (user and system), the median of several passes, each in a new process. Beside it:
the same by the clock; the same with what follows from a verdict (digest, judgment, distilling, rows), which is the rest
of the two stages; and `orjson.loads` over the same bytes, below which nothing that reads JSON can come. The steps and
functions are those of the longer run.

*Peers.* The same records on a topic of the embedded broker, read by a bare aiokafka loop, Quix Streams, Bytewax and
FastStream, which do nothing but `orjson.loads`; and by our own worker, which does everything, with Milvus left out.
Each runs alone in a process of its own; its clocks run from its first record to its last. The broker has the other
core.

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
from benchmarks.report import Report, Row, need
from benchmarks.traffic import TOPIC, Traffic, publish, traffic

EVENTS = 120_000
QUICK_EVENTS = 4_000
PASSES = 3
BAR = 60_000.0
UNIT = "events per CPU second"

PEERS: dict[str, tuple[str, str | None]] = {
    "aiokafka + orjson": ("with_aiokafka", None),
    "Quix Streams": ("with_quix", "quixstreams"),
    "Bytewax": ("with_bytewax", None),
    "FastStream": ("with_faststream", None),
}
REFERENCE = "aiokafka + orjson"


def run(quick: bool) -> Report:
    need("bytewax", "faststream", "confluent_kafka")
    sent = traffic(QUICK_EVENTS if quick else EVENTS)
    own = _own_work(sent, 1 if quick else PASSES)
    figure = _per_cpu_second(own["passes"])
    whole = _per_cpu_second(own["whole_passes"])
    beside = {name: _beside(sent, script, peer) for name, (script, peer) in PEERS.items()}
    worker = _beside(sent, "benchmarks.worker", None, "sessions,judgments")
    rows = [
        Row(name="fleetlore: from bytes to verdicts", figure=figure, unit=UNIT, note=sent.describe()),
        Row(
            name="the same by the clock",
            figure=median(each["events"] / each["seconds"] for each in own["passes"]),
            unit="events/s",
        ),
        Row(name="fleetlore: to judgments, what they teach, and rows", figure=whole, unit=UNIT),
        *_rates("fleetlore's worker on the broker, all work, without Milvus", worker),
        *(row for name, said in beside.items() for row in _rates(f"{name}, decode only", said)),
        *_steps(own, 1e6 / whole, sent.events),
    ]
    return Report(
        name="ingest",
        figure=figure,
        bar=BAR,
        unit=UNIT,
        peers={name: said["events"] / said["cpu_seconds"] for name, said in beside.items()},
        reference=REFERENCE,
        rows=tuple(rows),
        also=(stack.run(quick),),
    )


def _per_cpu_second(passes: list[dict[str, float]]) -> float:
    return median(each["events"] / each["cpu_seconds"] for each in passes)


def _own_work(sent: Traffic, passes: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "records"
        file.write_bytes(pickle.dumps(sent.records))

        def one(mode: str) -> Any:
            return peers.run("benchmarks.pipeline", file, mode)

        verdicts, whole = ([one(mode) for _ in range(passes)] for mode in ("verdicts", "whole"))
        sampled = one("sampled")
    loads = [each["loads_seconds"] for each in (*verdicts, *whole)]
    return {**sampled, "passes": verdicts, "whole_passes": whole, "loads": median(loads)}


def _beside(sent: Traffic, script: str, peer: str | None, *more: str) -> Any:
    """A broker of its own for each: what one of them has read must not lie in the broker's caches for the next."""
    with EmbeddedBroker() as broker:
        publish(broker.address, sent.records)
        arguments = (sent.events, *more) if "." in script else (TOPIC, sent.events)
        return peers.run(script, broker.address, *arguments, peer=peer)


def _rates(name: str, said: Any) -> tuple[Row, Row]:
    return (
        Row(name=name, figure=said["events"] / said["cpu_seconds"], unit=UNIT),
        Row(name=f"{name}, by the clock", figure=said["events"] / said["seconds"], unit="events/s"),
    )


def _steps(own: Any, cost: float, events: int) -> list[Row]:
    """Split the figure, measured without sampling, by the shares of a sampled pass."""
    unit = "µs of CPU per event"
    return [
        Row(
            name="physical limit: orjson.loads alone",
            figure=own["loads"] / events * 1e6,
            unit=unit,
        ),
        Row(name="all of it, rows included", figure=cost, unit=unit),
        *(Row(name=f"  {step}", figure=share * cost, unit=unit) for step, share in own["steps"].items()),
        *(
            Row(name=f"    {function}", figure=share * cost, unit=unit)
            for function, share in list(own["functions"].items())[:12]
        ),
    ]
