"""Send events as fast as they are processed: `python -m benchmarks.feeder BROKER GROUP SECONDS`.

It waits while `GROUP` has more than `BACKLOG_RECORDS` uncommitted records. So the pipeline is never idle, and no queue
grows. The logged runs get the time at which they are sent. Ends with one JSON line when the broker has acknowledged
everything.
"""

from __future__ import annotations

import asyncio
import sys
import time
from itertools import islice, takewhile
from typing import Any

import orjson

from benchmarks.traffic import TENANT, TOPIC, ended, events_of, sessions
from fleetlore.kafka.emitter import Emitter
from fleetlore.kafka.read import end_offsets, observer, partitions_of

BACKLOG_RECORDS = 500
BURST_EVENTS = 512
BUFFER_EVENTS = 20_000
LOOK_SECONDS = 0.2
FLUSH_SECONDS = 60.0


async def feed(broker: str, group: str, seconds: float) -> dict[str, float]:
    _, runs = sessions()
    emitter = Emitter(broker, TENANT, max_events=BUFFER_EVENTS)
    await emitter.start()
    async with observer(broker, group) as consumer:
        gate = asyncio.Event()
        watching = asyncio.create_task(_watch(consumer, gate))
        started, wall, cpu = time.time(), time.perf_counter(), time.process_time()
        in_time = takewhile(lambda _: time.perf_counter() < wall + seconds, events_of(runs, seed=0))
        events = ended(in_time)
        while burst := list(islice(events, BURST_EVENTS)):
            await gate.wait()
            now = time.time()
            for event in burst:
                emitter.emit(event._replace(time=now))
            while emitter.waiting > BUFFER_EVENTS - BURST_EVENTS:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0)
        watching.cancel()
        await emitter.flush(FLUSH_SECONDS)
    await emitter.close()
    return {
        "events": emitter.sent,
        "dropped": emitter.dropped,
        "started": started,
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
    }


async def _watch(consumer: Any, gate: asyncio.Event) -> None:
    while True:
        partitions = await partitions_of(consumer, TOPIC)
        ends = await end_offsets(consumer, partitions)
        waiting = sum([end - (await consumer.committed(partition) or 0) for partition, end in ends.items()])
        gate.set() if waiting < BACKLOG_RECORDS else gate.clear()
        await asyncio.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    print(orjson.dumps(asyncio.run(feed(sys.argv[1], sys.argv[2], float(sys.argv[3])))).decode())
