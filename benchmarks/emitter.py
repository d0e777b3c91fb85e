"""Count the events that one process hands to the broker a second, masked and acknowledged.

One process, one thread, one event loop; the embedded broker runs in another process. The events are those of real runs.
The figure counts acknowledged events, by the wall clock from the first event to the last acknowledgement. The CPU time
of an event (user and system) has a separate row and says what a whole core would reach.

*Peers* send the same bytes to the same broker, one record per event, each in a separate process: aiokafka by `send` and
by `create_batch`. They get the bytes ready made. Only our emitter encodes and masks an event.
`python -m benchmarks.emitter WHO BROKER EVENTS` runs one sender; one that is full waits for the broker.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import time
from collections.abc import Callable, Coroutine
from itertools import islice
from typing import Any

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder

from benchmarks import peers
from benchmarks.embedded_broker import EmbeddedBroker
from benchmarks.report import Report, Row
from benchmarks.traffic import PARTITIONS, TENANT, TOPIC, events_of, publish, sessions
from fleetlore.kafka.emitter import Emitter
from fleetlore.kafka.encode import encode_event
from fleetlore.wire.events import Event
from fleetlore.wire.topics import partition_for

EVENTS = 200_000
QUICK_EVENTS = 5_000
PASSES = 3
BAR = 100_000.0
UNIT = "events/s"
CPU = "µs of CPU per event"
REFERENCE = "aiokafka_create_batch"
BUFFER_EVENTS = 20_000
BURST_EVENTS = 64  # emitted between two turns of the event loop, as by agents that share a process
BATCH_BYTES = 512 * 1024
_DEADLINE_SECONDS = 300.0


def run(quick: bool) -> Report:
    events = QUICK_EVENTS if quick else EVENTS
    measured = {name: _measured(name, events, 1 if quick else PASSES) for name in ("emitter", *PEERS)}
    rates = {name: said["events"] / said["seconds"] for name, said in measured.items()}
    rows = []
    for name, said in measured.items():
        label = "fleetlore, encoding and masking included" if name == "emitter" else f"{name}, bytes ready made"
        rows.append(Row(label, rates[name], UNIT, note=f"{said['max_rss_mb']:.0f} MB"))
        rows.append(Row("  CPU", said["cpu_seconds"] / said["events"] * 1e6, CPU))
    return Report("emitter", rates.pop("emitter"), BAR, UNIT, peers=rates, reference=REFERENCE, rows=tuple(rows))


def _measured(who: str, events: int, passes: int) -> dict[str, float]:
    """The fastest of several passes: what slows one down comes from outside of it."""
    said = []
    for _ in range(passes):
        with EmbeddedBroker() as broker:  # a new broker for each, because it keeps everything in memory
            publish(broker.address, [])
            said.append(peers.run("benchmarks.emitter", who, broker.address, events))
    fastest: dict[str, float] = min(said, key=lambda each: float(each["seconds"]))
    return fastest


async def emitter(broker: str, events: list[Event]) -> int:
    own = Emitter(broker, TENANT, max_events=BUFFER_EVENTS)
    await own.start()
    for start in range(0, len(events), BURST_EVENTS):
        for event in events[start : start + BURST_EVENTS]:
            own.emit(event)
        await asyncio.sleep(0)
        while own.waiting > BUFFER_EVENTS - BURST_EVENTS:
            await asyncio.sleep(0.001)
    await own.flush(_DEADLINE_SECONDS)
    await own.close()
    return own.sent


async def aiokafka_send(broker: str, values: list[tuple[bytes, bytes]]) -> int:
    """aiokafka as most use it: a record an event, keyed by session; it puts them into batches."""
    async with AIOKafkaProducer(
        bootstrap_servers=broker, acks="all", linger_ms=5, max_batch_size=BATCH_BYTES, max_request_size=2 * BATCH_BYTES
    ) as producer:
        sent = [await producer.send(TOPIC, value, key=key) for key, value in values]
        await producer.flush()
        return len(await asyncio.gather(*sent))


async def aiokafka_create_batch(broker: str, values: list[tuple[bytes, bytes]]) -> int:
    """aiokafka as it is fastest: batches filled by hand, one under way a partition; a record an event."""
    async with AIOKafkaProducer(
        bootstrap_servers=broker, acks="all", max_batch_size=BATCH_BYTES, max_request_size=2 * BATCH_BYTES
    ) as producer:
        sent = []
        batches: dict[int, BatchBuilder] = {}
        for key, value in values:
            partition = partition_for(key.decode(), PARTITIONS)
            batch = batches.get(partition)
            if batch is None or batch.append(timestamp=None, key=key, value=value) is None:
                if batch is not None:
                    sent.append(await producer.send_batch(batch, TOPIC, partition=partition))
                batch = batches[partition] = producer.create_batch()
                batch.append(timestamp=None, key=key, value=value)
        for partition, batch in batches.items():
            sent.append(await producer.send_batch(batch, TOPIC, partition=partition))
        await asyncio.gather(*sent)
        return len(values)


PEERS: dict[str, Callable[[str, list[tuple[bytes, bytes]]], Coroutine[Any, Any, int]]] = {
    each.__name__: each for each in (aiokafka_send, aiokafka_create_batch)
}


def main(who: str, broker: str, count: int) -> None:
    events = list(islice(events_of(sessions()[1], seed=0), count))
    values = [] if who == emitter.__name__ else [(event.session.encode(), encode_event(event)) for event in events]
    work = emitter(broker, events) if who == emitter.__name__ else PEERS[who](broker, values)
    # Objects made for the measurement are no garbage, and a collection would walk through all of them.
    gc.collect()
    gc.freeze()
    before, started = time.process_time(), time.perf_counter()
    sent = asyncio.run(work)
    seconds, cpu = time.perf_counter() - started, time.process_time() - before
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(orjson.dumps({"events": sent, "seconds": seconds, "cpu_seconds": cpu, "max_rss_mb": rss}).decode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
