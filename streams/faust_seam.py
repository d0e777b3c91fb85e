"""The seam to Faust: all that fleetlore uses of it beyond its public interface, in one place with broker tests of its own.

Faust's automatic acknowledgements commit a record whose processing failed, so topics are declared with `acks=False` and
offsets are committed by `commit` below. Its consumer holds every fetch for 1,500 ms, which a broker that answers late turns
into a delay for each hop; `FleetTransport` sets the wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import faust
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport
from faust.types import TP

from streams.stage import Record, TopicPartition


def transport(app: faust.App, fetch_wait_ms: int) -> Transport:
    """A transport for `app` whose consumer lets the broker hold a fetch for `fetch_wait_ms` and no longer."""

    class Thread(AIOKafkaConsumerThread):  # type: ignore[misc,unused-ignore]
        def _create_worker_consumer(self, *args: Any, **kwargs: Any) -> Any:
            consumer = super()._create_worker_consumer(*args, **kwargs)
            # Read when the consumer starts and builds its fetcher.
            consumer._fetch_max_wait_ms = fetch_wait_ms
            return consumer

    class FleetConsumer(Consumer):  # type: ignore[misc,unused-ignore]
        def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
            return Thread(self, loop=self.loop, beacon=self.beacon)

    class FleetTransport(Transport):  # type: ignore[misc,unused-ignore]
        Consumer = FleetConsumer

    return FleetTransport(app.conf.broker_consumer, app, loop=app.loop)


async def commit(app: faust.App, offsets: Mapping[TopicPartition, int]) -> bool:
    """Commit offsets; those of partitions that moved away meanwhile are left out.

    Returns:
        False if the group has rebalanced: the new owner starts from the last commit, which is right.
    """
    return bool(await app.consumer._commit({TP(*tp): offset for tp, offset in offsets.items()}))


async def batches(stream: Any, most: int, linger_seconds: float) -> AsyncIterator[list[Any]]:
    """The stream's events in batches: whatever has come in while the last batch was worked on, at most `most`.

    `Stream.take_events` wakes up every `within` seconds whether or not anything came, which alone costs a tenth of a core
    for five agents, and lets a lone event wait for all of it. Here a stream that is idle costs nothing and its first event
    waits for `linger_seconds`, so that events sent together are worked on together.
    """
    events = stream.events()
    queue = stream.channel.queue
    async for event in events:
        batch = [event]
        await asyncio.sleep(linger_seconds)
        while len(batch) < most and not queue.empty():
            batch.append(await anext(events))
        yield batch


def current(app: faust.App, events: list[Any]) -> list[Record]:
    """The events of a batch as records, without those that were fetched before the last rebalance.

    A partition that came back starts again at its committed offset; what was fetched before would be out of order.
    """
    generation = app.consumer_generation_id
    return [
        Record(
            message.topic,
            message.partition,
            message.offset,
            message.key,
            message.value,
            dict(message.headers or ()),
        )
        for message in (event.message for event in events)
        if message.generation_id == generation
    ]
