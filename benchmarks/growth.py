"""Measure the cost of an event as events or sessions grow: `python -m benchmarks.growth events|sessions N…`.

Stage-level, one process, no broker (see `benchmarks.pipeline`). `events`: the same sessions under new names again and
again until N events have passed, N growing. `sessions`: N sessions open at the same time, whose events come in turn, so
that each event meets another session than the one before it; one process for each N. Prints a JSON line: for each N the
CPU microseconds per event over the last part, and the memory of the process.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Iterator
from typing import Any

import orjson
import psutil

from benchmarks.pipeline import Pipeline, batches
from benchmarks.traffic import PARTITIONS, TENANT, Sent, traffic
from fleetlore.emit.encode import encode_event
from fleetlore.wire import events as ev
from fleetlore.wire.events import MAX_EVENTS, Event

ROUND_EVENTS = 50_000
# Of the last events before each N, over which its cost is taken.
WINDOW_EVENTS = 100_000
CALLS = 3
MARK = "session-000000000"


async def events(counts: list[int], pipeline: Pipeline, round_events: int = ROUND_EVENTS) -> list[dict[str, float]]:
    """One pipeline from the first event to the last; the cost of the last `WINDOW_EVENTS` before each count."""
    sent = traffic(round_events).records
    offset, said, round = 0, [], 0
    window: list[tuple[int, float]] = []
    for count in counts:
        while pipeline.processed < count:
            named = [each._replace(value=each.value.replace(b'~0"', b'~%d"' % round)) for each in sent]
            before = pipeline.processed
            spent, offset = await _work(pipeline, named, offset)
            window.append((pipeline.processed - before, spent))
            round += 1
        last = window[-max(1, WINDOW_EVENTS // round_events) :]
        said.append(_figures(count, sum(spent for _, spent in last), sum(done for done, _ in last)))
    return said


async def sessions(count: int, pipeline: Pipeline, window_events: int = WINDOW_EVENTS) -> dict[str, float]:
    """All `count` sessions open at once; at least `window_events` events."""
    spent, offset = 0.0, 0
    wave = 0
    while pipeline.processed < max(window_events, (CALLS + 2) * count):
        for step in range(CALLS + 2):
            for records in _chunks(_wave(count, wave, step), 1_000):
                took, offset = await _work(pipeline, records, offset)
                spent += took
        wave += 1
    return _figures(count, spent, pipeline.processed)


async def _work(pipeline: Pipeline, records: list[Sent], offset: int) -> tuple[float, int]:
    made = [[each._replace(offset=each.offset + offset) for each in batch] for batch in batches(records)]
    started = time.process_time()
    for batch in made:
        await pipeline.work(batch)
    return time.process_time() - started, offset + len(records)


def _wave(count: int, wave: int, step: int) -> Iterator[Sent]:
    """Event `step` of every session, in records."""
    template = encode_event(_event(step)).replace(MARK.encode(), b"session-%09d")
    queues: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for number in range(wave * count, (wave + 1) * count):
        partition = number % PARTITIONS
        queue = queues[partition]
        queue.append(template % number)
        if len(queue) == MAX_EVENTS:
            yield Sent(partition, len(queue), b"[" + b",".join(queue) + b"]")
            queue.clear()
    for partition, queue in enumerate(queues):
        if queue:
            yield Sent(partition, len(queue), b"[" + b",".join(queue) + b"]")


def _event(step: int) -> Event:
    """A session's start, its calls (the first of them fails) and its end."""
    call: dict[str, Any] = {ev.TOOL: "bash", ev.ARGUMENTS: {"command": f"make target-{step}"}}
    kind: ev.Kind = "outcome"
    if step == 0:
        kind, data = "session.started", {ev.GOAL: "build the target", ev.TASK: "build"}
    elif step == CALLS + 1:
        kind, data = "session.ended", {ev.OUTCOME: "success"}
    elif step == 1:
        kind, data = (
            "outcome",
            call | {ev.ERROR_TYPE: "ExitCode", ev.ERROR_MESSAGE: "make: *** No rule to make target 'x'. Stop."},
        )
    else:
        data = call | {ev.RESULT: "built"}
    return Event(kind, TENANT, "agent-1", MARK, step, time.time() - 60 + step, data)


def _chunks(records: Iterator[Sent], size: int) -> Iterator[list[Sent]]:
    chunk: list[Sent] = []
    for record in records:
        chunk.append(record)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _figures(count: int, spent: float, done: int) -> dict[str, float]:
    gc.collect()
    return {"n": count, "us": spent / done * 1e6, "rss_mb": psutil.Process().memory_info().rss / 1e6}


def main(what: str, counts: list[int]) -> None:
    if what == "events":
        said = asyncio.run(events(counts, Pipeline(whole=True)))
    else:
        said = [asyncio.run(sessions(count, Pipeline(whole=True))) for count in counts]
    print(orjson.dumps(said).decode())


if __name__ == "__main__":
    main(sys.argv[1], [int(float(each)) for each in sys.argv[2:]])
