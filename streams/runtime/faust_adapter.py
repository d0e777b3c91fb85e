"""Adapt Faust: read its streams in batches, bound their buffers by bytes, and commit when the worker says so.

Faust's automatic acknowledgements commit a record whose processing failed, so topics are declared with `acks=False` and
`commit` commits the offsets. Faust bounds a stream's buffer by records, of which one may hold 256 KiB; `Buffer` bounds
it by bytes. A full buffer pauses its partitions until it is drained to two fifths.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any

import faust
from aiokafka.errors import KafkaError
from faust.exceptions import ConsumerNotStarted
from faust.types import TP
from mode.utils.queues import ThrowableQueue

from streams.stage.base import Record, TopicPartition

# A record takes up at least one place of a buffer: one of 1,024 places holds at most 16 MiB, or 1,024 small records.
_PLACE_BYTES = 16 * 1024


def places(event: Any) -> int:
    """Return how many places of a `Buffer` an event of Faust takes up."""
    return 1 + len(event.message.value or b"") // _PLACE_BYTES


class Buffer(ThrowableQueue):  # type: ignore[misc,unused-ignore]
    """The events that a stream has fetched and not read. Faust pauses and resumes by its size, in places."""

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


async def commit(app: faust.App, offsets: Mapping[TopicPartition, int]) -> bool:
    """Commit offsets; those of partitions that moved away meanwhile are left out.

    Returns:
        False if the group has rebalanced: the new owner starts from the last commit, which is right.
    """
    return bool(await app.consumer._commit({TP(*tp): offset for tp, offset in offsets.items()}))


def failure(app: faust.App) -> BaseException | None:
    """What the Kafka client has stopped at for good: its own `getmany` would raise it, and Faust does not call that."""
    client = None if app._consumer is None else app._consumer._thread._consumer
    # It has neither before the first server has answered, which may take a while.
    if client is None or client._coordinator is None or client._fetcher is None:
        return None
    coordinator = client._coordinator
    ended = (coordinator._coordination_task, client._fetcher._fetch_task, client._client._sync_task)
    return coordinator._pending_exception or next(
        (task.exception() for task in ended if task.done() and not task.cancelled()), None
    )


async def truncated(app: faust.App, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Count the records of each partition that were processed and that the broker has no more; each is told once.

    That is after an election of a replica that was not in sync, or where a topic was made anew.

    Args:
        positions: the next offset to process; where it is missing, the commit counts.
    """
    if app._consumer is None or not (found := app.consumer._thread.truncated):
        return {}
    consumer = app.consumer
    ends = await consumer.highwaters(*found)
    found.difference_update(ends)
    return {
        TopicPartition(*tp): max(0, positions.get(tp, consumer._committed_offset[tp] or 0) - end)
        for tp, end in ends.items()
    }


async def read_anew(app: faust.App, partitions: Collection[TopicPartition]) -> None:
    """Commit the beginning of partitions, whoever has them next, and have the group assign all anew."""
    thread = app.consumer._thread
    try:
        await app.consumer._commit(await app.consumer.earliest_offsets(*(TP(*tp) for tp in partitions)))
    finally:  # where that failed, it is out of range again
        thread.thread_loop.call_soon_threadsafe(thread._consumer._coordinator.request_rejoin)


def stop_fetching(app: faust.App) -> None:
    """Read nothing more from the broker; heartbeats and commits go on."""
    if app._consumer is not None:
        app._consumer.stop_flow()


def pause(app: faust.App, topics: Collection[str]) -> None:
    """Fetch nothing more of these topics, until partitions are assigned anew."""
    app.consumer.pause_partitions({tp for tp in app.consumer.assignment() if tp.topic in topics})


def paused(app: faust.App) -> int:
    """Count the partitions that are not fetched from, because their buffer is full."""
    return len(app.consumer._buffered_partitions)


async def lags(app: faust.App, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Count the records of each assigned partition that are not processed yet.

    Args:
        positions: the next offset to process; where it is missing, the commit counts.

    The end of a partition comes with every fetch. A paused partition is not fetched, so the broker is asked for its
    end. Markers of transactions and records of aborted ones do not count.
    """
    consumer = app.consumer
    found: dict[TopicPartition, int] = {}
    # The consumer has its own thread: it may not have started, a partition may move away meanwhile, the broker be down.
    with contextlib.suppress(ConsumerNotStarted, AssertionError, KafkaError):
        assigned = consumer.assignment()
        stale = (consumer._buffered_partitions | consumer._paused_partitions) & assigned
        asked = await consumer.highwaters(*stale) if stale else {}
        for tp in assigned:
            end = max(consumer.highwater(tp) or 0, asked.get(tp, 0))
            done, handed = positions.get(tp, consumer._committed_offset[tp] or 0), consumer._read_offset[tp]
            if done < end and (handed is None or handed < done):
                # All that was handed over is processed. What the client passed over behind it was no record.
                done = max(done, await consumer.position(tp) or 0)
            found[TopicPartition(*tp)] = max(0, end - done)
    return found


async def batches(stream: Any, most_places: int, linger_seconds: float) -> AsyncIterator[list[Any]]:
    """Yield the stream's events in batches: all that came during the last batch, up to `most_places` of `Buffer`.

    `Stream.take_events` wakes up every `within` seconds whether or not an event came, which costs a tenth of a core for
    five agents, and a lone event waits for all of it. Here an idle stream costs nothing. Its first event waits for
    `linger_seconds`, so that events sent together are batched; a full batch does not wait.
    """
    events = stream.events()
    queue = stream.channel.queue
    async for event in events:
        batch = [event]
        taken = places(event)
        if taken + queue.qsize() < most_places:
            await asyncio.sleep(linger_seconds)
        while taken < most_places and not queue.empty():
            # Not by the stream, which gives the event loop a turn before each event. What it leaves out besides, events
            # from before a rebalance, `current` does.
            event = queue.get_nowait()
            batch.append(event)
            taken += places(event)
        yield batch


async def expired(
    app: faust.App, batch: Sequence[Record], positions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Count the records before those of a batch that retention deleted: the client goes on after them without a word.

    Args:
        positions: the next offset to process; where it is missing, the commit counts.
    """
    consumer = app.consumer
    firsts: dict[TopicPartition, int] = {}
    for record in batch:
        firsts.setdefault(record.tp, record.offset)
    gaps = {
        tp: start
        for tp, first in firsts.items()
        # Where nothing was committed, what there is is all that there was to read.
        if (start := positions.get(tp, consumer._committed_offset[tp])) is not None and start < first
    }
    if not gaps:
        return {}
    # Transactions and compaction leave gaps too, behind the beginning.
    begins = await consumer.earliest_offsets(*(TP(*tp) for tp in gaps))
    return {tp: begins[tp] - start for tp, start in gaps.items() if begins[tp] > start}


def current(app: faust.App, events: list[Any]) -> list[Record]:
    """Return the events of a batch as records, without those that were fetched before the last rebalance.

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
            message.timestamp,
        )
        for message in (event.message for event in events)
        if message.generation_id == generation
    ]
