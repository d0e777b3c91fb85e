"""The seam to Faust: all that fleetlore uses of it beyond its public interface, in one place with broker tests of its own.

Faust's automatic acknowledgements commit a record whose processing failed, so topics are declared with `acks=False` and
offsets are committed by `commit` below. Its consumer holds every fetch for 1,500 ms, which a broker that answers late turns
into a delay for each hop; `FleetTransport` sets the wait. Its buffers are bounded by records, of which one may hold 256 KiB;
`Buffer` bounds them by bytes. A buffer that fills up pauses its partitions until it is drained to two fifths.
A record costs Faust more than what most stages do with it: `wait_first` says what of that is left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import types
from collections.abc import AsyncIterator, Mapping
from typing import Any

import faust
from aiokafka.errors import KafkaError
from faust.exceptions import ConsumerNotStarted
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport
from faust.types import TP
from mode.services import WaitResults
from mode.utils.queues import ThrowableQueue

from streams.stage.base import Record, TopicPartition

# What a record takes up of a buffer, a place at least: a buffer of 1,024 places holds at most 16 MiB, or 1,024 small records.
PLACE_BYTES = 16 * 1024
# How soon a partition that was paused is fetched from again. Faust looks after a second, in which a worker would stand idle.
RECHECK_SECONDS = 0.05


def places(event: Any) -> int:
    """How many places of a `Buffer` an event of Faust takes up."""
    return 1 + len(event.message.value or b"") // PLACE_BYTES


class Buffer(ThrowableQueue):  # type: ignore[misc,unused-ignore]
    """What a stream has fetched and not yet read. Its size is counted in places, by which Faust pauses and resumes."""

    _taken = 0

    def qsize(self) -> int:
        return self._taken

    def _put(self, event: Any) -> None:
        self._taken += places(event)
        super()._put(event)

    def _get(self) -> Any:
        event = super()._get()
        self._taken -= places(event)
        return event

    def clear(self) -> None:
        super().clear()
        self._taken = 0


def transport(app: faust.App, fetch_wait_ms: int) -> Transport:
    """A transport for `app` whose consumer lets the broker hold a fetch for `fetch_wait_ms` and no longer."""

    class Thread(AIOKafkaConsumerThread):  # type: ignore[misc,unused-ignore]
        def _create_worker_consumer(self, *args: Any, **kwargs: Any) -> Any:
            consumer = super()._create_worker_consumer(*args, **kwargs)
            # Read when the consumer starts and builds its fetcher.
            consumer._fetch_max_wait_ms = fetch_wait_ms
            return consumer

        async def _commit(self, offsets: Mapping[TP, int]) -> bool:
            # Where all partitions have moved away nothing is left to commit, which aiokafka takes for a mistake and Faust for
            # a reason to crash. Looked at here, on the consumer's thread, where no rebalance comes between.
            mine = {tp: offset for tp, offset in offsets.items() if tp in self.assignment()}
            return bool(await super()._commit(mine)) if mine else False

    class FleetConsumer(Consumer):  # type: ignore[misc,unused-ignore]
        def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
            return Thread(self, loop=self.loop, beacon=self.beacon)

        async def _wait_next_records(self, timeout: float) -> Any:
            if self._buffered_partitions and self.flow_active:
                timeout = RECHECK_SECONDS
                if not self._get_active_partitions():
                    await self.sleep(timeout)
                    return {}, set()
            return await super()._wait_next_records(timeout)

        async def wait_first(self, *coros: Any, timeout: Any = None) -> Any:
            """Wait for a record to be handed to its stream, or else for the flow to be suspended: Faust makes four tasks for that.

            Nearly always the stream's buffer has room and nobody waits. So the coroutine that hands it over is begun here, and only
            what is left of one that has to wait goes Faust's way. Measured: 90 µs of the 240 µs that Faust takes for a record.
            """
            if len(coros) != 2 or not all(map(inspect.iscoroutine, coros)) or timeout is not None:
                return await super().wait_first(*coros, timeout=timeout)
            handing_over, suspended = coros
            try:
                waits_for = handing_over.send(None)
            except StopIteration as end:
                suspended.close()
                return WaitResults([handing_over], [end.value], False)
            except BaseException:
                suspended.close()
                raise
            return await super().wait_first(_rest(handing_over, waits_for), suspended)

    class FleetTransport(Transport):  # type: ignore[misc,unused-ignore]
        Consumer = FleetConsumer

    return FleetTransport(app.conf.broker_consumer, app, loop=app.loop)


async def _rest(begun: Any, waits_for: Any) -> Any:
    """What is left of a coroutine that was begun with `send` and waits for a future; an `await` of it would be refused."""
    return await _gone_on(begun, waits_for)


@types.coroutine
def _gone_on(begun: Any, waits_for: Any) -> Any:
    try:
        yield waits_for
    except BaseException:
        begun.close()
        raise
    return (yield from begun)


async def commit(app: faust.App, offsets: Mapping[TopicPartition, int]) -> bool:
    """Commit offsets; those of partitions that moved away meanwhile are left out.

    Returns:
        False if the group has rebalanced: the new owner starts from the last commit, which is right.
    """
    return bool(await app.consumer._commit({TP(*tp): offset for tp, offset in offsets.items()}))


def stop_fetching(app: faust.App) -> None:
    """Read nothing more from the broker; heartbeats and commits go on."""
    if app._consumer is not None:
        app._consumer.stop_flow()


def paused(app: faust.App) -> int:
    """How many partitions are not fetched from, because what was fetched of them has not been worked on yet."""
    return len(app.consumer._buffered_partitions)


async def lags(app: faust.App, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Records not yet processed of each partition that is assigned, by the offset of the next one to process.

    Where nothing was processed since the partition was assigned, it counts from the commit. The end of a partition comes with
    every fetch; that of a paused one stands still and is asked for.
    """
    consumer = app.consumer
    found: dict[TopicPartition, int] = {}
    # The consumer lives on another thread: not started yet, a partition moved away between two lines of this, the broker away.
    with contextlib.suppress(ConsumerNotStarted, AssertionError, KafkaError):
        assigned = consumer.assignment()
        stale = consumer._buffered_partitions & assigned
        asked = await consumer.highwaters(*stale) if stale else {}
        for tp in assigned:
            end = max(consumer.highwater(tp) or 0, asked.get(tp, 0))
            found[TopicPartition(*tp)] = max(0, end - positions.get(tp, consumer._committed_offset[tp] or 0))
    return found


async def batches(stream: Any, most_places: int, linger_seconds: float) -> AsyncIterator[list[Any]]:
    """The stream's events in batches: whatever has come in while the last batch was worked on, up to `most_places` of `Buffer`.

    `Stream.take_events` wakes up every `within` seconds whether or not anything came, which alone costs a tenth of a core
    for five agents, and lets a lone event wait for all of it. Here a stream that is idle costs nothing and its first event
    waits for `linger_seconds`, so that events sent together are worked on together; not where a whole batch is there already.
    """
    events = stream.events()
    queue = stream.channel.queue
    async for event in events:
        batch = [event]
        taken = places(event)
        if taken + queue.qsize() < most_places:
            await asyncio.sleep(linger_seconds)
        while taken < most_places and not queue.empty():
            event = await anext(events)
            batch.append(event)
            taken += places(event)
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
