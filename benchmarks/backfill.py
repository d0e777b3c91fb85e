"""Measure a backfill of logged runs, in events/s and against the time of the fleet, and the switch of the names.

The events lie on the stack's broker and the rows go to new collections on its Milvus Lite. The events
are dated as if 64 agents worked at the same time and took a second for a step, which is fast for agents that ask a
model before each. After the switch the live names are read: they hold what the backfill made.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
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
    source, runs = sessions()
    # On the fleet's clock, the last of them not in the future.
    start, step = time.time() - 10_000_000, STEP_SECONDS / CONCURRENT_SESSIONS
    events = enumerate(islice(events_of(runs, 0), 20_000 if quick else 200_000))
    return asyncio.run(_measured(source, [event._replace(time=start + number * step) for number, event in events]))


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
    rows = (
        Row("backfill", figures["events_per_second"], "events/s", note=sent.describe()),
        Row("its process", own / report.events * 1e6, "µs/event", note="CPU"),
        Row("Milvus Lite", server / report.events * 1e6, "µs/event", note="CPU"),
        Row(
            "switch of the names",
            switching,
            "s",
            note=f"with {RESOLVE_SECONDS:.0f} s for workers to follow and agents to hear; {spent:.1f} s of its CPU",
        ),
        Row(
            "judgments under the live names",
            len(known.judgments),
            "rows",
            note=f"and {known.patterns.total():,} patterns, {known.items.total():,} items",
        ),
    )
    return Report("backfill", figures["times_real_time"], BAR, "× real time", rows=rows)


async def _live(settings: Settings) -> Knowledge:
    """Create the live collections if they are missing, and return their content."""
    async with MilvusStore.from_settings(settings) as store:
        await store.open()
        return await read_knowledge(store, TENANT)
