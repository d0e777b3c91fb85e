"""A long session pauses, is closed for its silence, and goes on: a rebalance between makes no difference to counts."""

from __future__ import annotations

from typing import Any

import pytest

from fleetlore.wire.topics import partition_for
from tests.streams.log_pipeline import BASE_TIME, PARTITIONS, Call, LogPipeline

SILENT = 600.0
KINDS = 20
Counts = dict[str, tuple[int, int, int]]


def call(number: int, pad: int) -> Call:
    """Every second one fails."""
    kind = f"problem kind {chr(97 + number % KINDS)} found in part {'y' * pad}" if number % 2 else None
    return f"tool_{number % 7}", {"i": number, "pad": "x" * pad}, "r" * pad, kind


async def counted(length: int, pad: int, restart: bool) -> Counts:
    """(calls, failures, sessions that failed) of each pattern, by its id."""
    pipeline = LogPipeline(silent_seconds=SILENT)
    story = pipeline.story
    late = [call(2 * n + 1, pad) for n in range(6)]
    events = story.session("x", *(call(n, pad) for n in range(length)), *late, outcome="failure", agent="alice")
    head, tail = events[: length + 1], events[length + 1 :]
    await pipeline.send(head, per_record=16)
    await pipeline.drain()
    there = partition_for("x", PARTITIONS)
    others = [name for n in range(64) if partition_for(name := f"o{n}", PARTITIONS) == there][:8]
    for n, name in enumerate(others, 1):
        start = BASE_TIME + length + n * SILENT / 4
        await pipeline.send(story.session(name, ("sql", {"q": "a"}, "", None), agent="bob", start=start))
        await pipeline.drain()
    if restart:
        pipeline.crash()
    await pipeline.send([event._replace(time=event.time + 3 * SILENT) for event in tail])
    await pipeline.drain()
    for _ in range(2):
        pipeline.clock.advance(90)
        await pipeline.drain()
    bodies: list[dict[str, Any]] = await pipeline.bodies("patterns")
    return {
        body["id"]: (body["calls"], body["failures"], body.get("sessions_failed", 0))
        for body in bodies
        if body["level"] != "exact" or not body["template"].startswith("loop")
    }


@pytest.mark.parametrize(("length", "pad"), [(20, 20), (20, 1500), (150, 600), (300, 20), (500, 300)])
async def test_counts_survive_a_rebalance_whatever_the_length(length: int, pad: int) -> None:
    calm = await counted(length, pad, restart=False)
    assert sum(failures for _, failures, _ in calm.values())
    assert await counted(length, pad, restart=True) == calm
