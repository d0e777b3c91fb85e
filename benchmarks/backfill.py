"""Measure a backfill of logged runs, in events/s and against the time of the fleet, and the switch of the names.

The events lie on the stack's broker and the rows go to new collections on its Milvus Lite. The events
are dated as if 64 agents worked at the same time and took a second for a step, which is fast for agents that ask a
model before each. After the switch the live names are read: they hold what the backfill made.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from itertools import islice

from benchmarks.cpu import cpu_by_role
from benchmarks.replay import CONCURRENT_SESSIONS, Knowledge, read_knowledge
from benchmarks.report import Report, Row
from benchmarks.traffic import TENANT, Traffic, events_of, pack, publish, sessions
from fleetlore.config import Settings
from fleetlore.wire.events import Event
from sinks.milvus import RESOLVE_SECONDS, MilvusStore
from streams.embedded.stack import Stack
from streams.offline.backfill import BackfillReport, run_backfill, switch

STEP_SECONDS = 1.0
BAR = 50.0
VERSION = "benchmark"


def run(quick: bool) -> Report:
    """See the module."""
    source, runs = sessions()
    return asyncio.run(_measured(source, list(_timed(islice(events_of(runs, 0), 20_000 if quick else 200_000)))))


async def _measured(source: str, events: list[Event]) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        async with Stack(folder, tenants=(TENANT,), workers=0, trainer=False) as stack:
            settings = stack.settings
            sent = Traffic(source, list(pack(events, partitions=settings.partitions)))
            await asyncio.to_thread(publish, settings.broker, sent.records)
            await _live(settings)
            server, own = cpu_by_role()["Milvus Lite"], time.process_time()
            report: BackfillReport = await run_backfill(settings, VERSION)
            own, server = time.process_time() - own, cpu_by_role()["Milvus Lite"] - server
            began, spent = time.perf_counter(), time.process_time()
            await switch(settings, VERSION)
            switching, spent = time.perf_counter() - began, time.process_time() - spent
            known = await _live(settings)
    figures = report.to_dict()
    return Report(
        name="backfill",
        figure=figures["times_real_time"],
        bar=BAR,
        unit="× real time",
        peers={},
        rows=(
            Row(name="backfill", figure=figures["events_per_second"], unit="events/s", note=sent.describe()),
            Row(name="its process", figure=own / report.events * 1e6, unit="µs/event", note="CPU"),
            Row(name="Milvus Lite", figure=server / report.events * 1e6, unit="µs/event", note="CPU"),
            Row(
                name="switch of the names",
                figure=switching,
                unit="s",
                note=f"with {RESOLVE_SECONDS:.0f} s for workers to follow and agents to hear; {spent:.1f} s of its CPU",
            ),
            Row(
                name="judgments under the live names",
                figure=len(known.judgments),
                unit="rows",
                note=f"and {known.patterns.total():,} patterns, {known.items.total():,} items",
            ),
        ),
    )


async def _live(settings: Settings) -> Knowledge:
    """Create the live collections if they are missing, and return their content."""
    async with MilvusStore.from_settings(settings) as store:
        await store.open()
        return await read_knowledge(store, TENANT)


def _timed(events: Iterator[Event]) -> Iterator[Event]:
    """The same events on the fleet's clock, the last of them not in the future."""
    start = time.time() - 10_000_000
    for number, event in enumerate(events):
        yield event._replace(time=start + number * STEP_SECONDS / CONCURRENT_SESSIONS)
