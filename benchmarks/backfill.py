"""A backfill of logged runs: events/s, and how many times faster than the fleet lived through them.

The events lie on an embedded broker and the rows go to Milvus Lite, both child processes. The clock of the events is that of
64 agents at work at the same time that take a second for a step each, which is fast for agents that ask a model before each.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import islice

from benchmarks.cpu import cpu_by_role
from benchmarks.milvus import milvus_server
from benchmarks.report import Report, Row
from benchmarks.traffic import TENANT, Traffic, events_of, pack, publish, sessions
from fleetlore.config import Settings
from fleetlore.events import Event
from fleetlore.testing.broker import EmbeddedBroker
from streams.backfill import BackfillReport, run_backfill
from streams.replay import CONCURRENT_SESSIONS

STEP_SECONDS = 1.0
BAR = 50.0


def run(quick: bool) -> Report:
    """See the module."""
    source, runs = sessions()
    records = list(pack(_timed(islice(events_of(runs, 0), 2_000 if quick else 200_000))))
    with EmbeddedBroker() as broker, milvus_server() as milvus:
        publish(broker.address, records)
        settings = Settings(broker=broker.address, milvus=milvus, tenants=(TENANT,))
        server, own = cpu_by_role()["Milvus Lite"], time.process_time()
        report: BackfillReport = asyncio.run(run_backfill(settings, "benchmark"))
        own, server = time.process_time() - own, cpu_by_role()["Milvus Lite"] - server
    figures = report.to_dict()
    return Report(
        name="backfill",
        figure=figures["times_real_time"],
        bar=BAR,
        unit="× real time",
        peers={},
        rows=(
            Row(
                name="backfill",
                figure=figures["events_per_second"],
                unit="events/s",
                note=Traffic(source, records).describe(),
            ),
            Row(name="its process", figure=own / report.events * 1e6, unit="µs/event", note="CPU"),
            Row(name="Milvus Lite", figure=server / report.events * 1e6, unit="µs/event", note="CPU"),
        ),
    )


def _timed(events: Iterator[Event]) -> Iterator[Event]:
    """The same events on the fleet's clock, the last of them not in the future."""
    start = time.time() - 10_000_000
    for number, event in enumerate(events):
        yield event._replace(time=start + number * STEP_SECONDS / CONCURRENT_SESSIONS)
