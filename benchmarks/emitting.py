"""Run one sender of events alone in a process: `WHO BROKER EVENTS`. Print how long the acknowledgements took.

`emitter` is given events as an agent's code makes them; the others are given the bytes that `emitter` sends for each,
encoded and masked before the clock starts. A sender that has room left goes on at once; one that is full waits for the
broker.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import islice

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder

from benchmarks.traffic import PARTITIONS, TENANT, TOPIC, events_of, sessions
from fleetlore.kafka.emitter import Emitter
from fleetlore.kafka.encode import encode_event
from fleetlore.wire.events import Event
from fleetlore.wire.topics import partition_for

BUFFER_EVENTS = 20_000
BURST_EVENTS = 64  # emitted between two turns of the event loop, as by agents that share a process
BATCH_BYTES = 512 * 1024
_DEADLINE_SECONDS = 300.0


async def emitter(broker: str, events: list[Event]) -> int:
    """fleetlore's own."""
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


PEERS: dict[str, Callable[[str, list[tuple[bytes, bytes]]], Awaitable[int]]] = {
    each.__name__: each for each in (aiokafka_send, aiokafka_create_batch)
}


def main(who: str, broker: str, count: int) -> None:
    events = list(islice(events_of(sessions()[1], seed=0), count))
    values = [] if who == emitter.__name__ else [(event.session.encode(), encode_event(event)) for event in events]
    work = emitter(broker, events) if who == emitter.__name__ else PEERS[who](broker, values)
    # Objects made for the measurement are no garbage, and a collection would walk through all of them.
    gc.collect()
    gc.freeze()
    before, started = _cpu_seconds(), time.perf_counter()
    sent = asyncio.run(_awaited(work))
    seconds, cpu = time.perf_counter() - started, _cpu_seconds() - before
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(orjson.dumps({"events": sent, "seconds": seconds, "cpu_seconds": cpu, "max_rss_mb": rss}).decode())


async def _awaited(work: Awaitable[int]) -> int:
    return await work


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
