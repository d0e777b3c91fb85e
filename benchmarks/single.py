"""Compare our worker with a bare Faust agent on records of one event each, as clients of other makers send them.

Both read the same topic of the embedded broker, filled beforehand, each alone in a separate process. The worker does
all of its work on an event (decode to judgment; the stages `sessions` and `judgments`), with delivery, producer and
commits, and Milvus left out; the agent counts. The figure is our records per second of CPU as a share of the agent's.
The broker shares the two cores with the reader, so the clock is no measure. Other rows show the same by the clock, and
the worker with all of its stages.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.ingest import beside
from benchmarks.report import Report, Row
from benchmarks.traffic import TOPIC, traffic

RECORDS = 40_000
QUICK_RECORDS = 1_000
PASSES = 3
BAR = 95.0
UNIT = "% of a bare Faust agent"
WORK = "sessions,judgments"


def run(quick: bool) -> Report:
    sent = traffic(QUICK_RECORDS if quick else RECORDS, per_record=1)
    bare, ours, all_stages = [], [], []
    # Taking turns, so that what else the machine does falls on all of them alike.
    for _ in range(1 if quick else PASSES):
        bare.append(beside(sent, "with_faust", TOPIC, sent.events))
        ours.append(beside(sent, "benchmarks.worker", sent.events, WORK))
        all_stages.append(beside(sent, "benchmarks.worker", sent.events, "all"))
    figure = 100 * _rate(ours, "cpu_seconds") / _rate(bare, "cpu_seconds")
    rows = (
        Row("fleetlore's worker, all work on an event", figure, UNIT, note=sent.describe()),
        Row("the same by the clock", 100 * _rate(ours, "seconds") / _rate(bare, "seconds"), UNIT),
        Row(
            "with the stages that make lore of it as well",
            100 * _rate(all_stages, "cpu_seconds") / _rate(bare, "cpu_seconds"),
            UNIT,
            note="patterns, candidates and items; each reads what an earlier stage wrote to a topic",
        ),
        *_costs("bare Faust agent", bare),
        *_costs("fleetlore's worker, all work on an event", ours),
        *_costs("fleetlore's worker, all stages", all_stages),
    )
    return Report(
        "single", figure, BAR, UNIT, peers={"bare Faust agent": 100.0}, reference="bare Faust agent", rows=rows
    )


def _rate(runs: list[Any], seconds: str) -> float:
    return median(float(run["events"] / run[seconds]) for run in runs)


def _costs(name: str, runs: list[Any]) -> tuple[Row, Row]:
    return (
        Row(name, 1e6 / _rate(runs, "cpu_seconds"), "µs of CPU per record"),
        Row(f"{name}, by the clock", _rate(runs, "seconds"), "records/s"),
    )
