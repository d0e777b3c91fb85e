"""Send an agent's events to the broker without making the agent wait.

`emit` adds an event to a bounded buffer on any thread. A partition has one batch in flight, so a retry cannot overtake
later events. Delivery is at least once; event ids make duplicates harmless.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from aiokafka.errors import MessageSizeTooLargeError

from fleetlore.cluster import Bootstrap, named
from fleetlore.errors import NotOpen
from fleetlore.kafka.client import STOP_SECONDS, backoff, check_place, connected, make_producer
from fleetlore.kafka.encode import Encoded, encode, mask, masks_of, record
from fleetlore.wire.events import BATCH_HEADERS, MAX_BYTES, MAX_EVENTS, Event
from fleetlore.wire.principals import signer
from fleetlore.wire.topics import partition_for, topic

if TYPE_CHECKING:  # extra [personal]
    from fleetlore.redact.personal import PersonalData

__all__ = ["Emitter"]

log = logging.getLogger(__name__)

_HEADERS = list(BATCH_HEADERS)  # the client requires a list

# Below the broker's default limit of 1 MiB. Masking and packing it stops the event loop for two milliseconds.
_BATCH_BYTES = 3 * (MAX_BYTES + 1024)
_BATCH_EVENTS = 8 * MAX_EVENTS
# Sent at once. An embedded broker scans a partition's batches for each new one.
_FULL_BATCH = 4 * MAX_EVENTS
_MAX_WAITING_BYTES = 64 * 2**20
_LINGER_SECONDS = 0.1  # an event waits this long for its batch to fill
_REQUEST_SECONDS = 5.0  # before a retry
_KNOWN_SESSIONS = 4096  # above it the cache is cleared

_Entry = tuple[int, str, Encoded]  # sequence number of `emit`, session, event


class _PartitionQueue:
    __slots__ = ("entries", "flush_now", "limit", "not_empty")

    def __init__(self) -> None:
        self.entries: deque[_Entry] = deque()
        self.not_empty = asyncio.Event()
        self.flush_now = asyncio.Event()
        self.limit = _BATCH_EVENTS

    def next_batch(self) -> tuple[list[Encoded], list[int]]:
        events = [event for _, _, event in islice(self.entries, self.limit)]
        sizes = [event[0] for event in events]
        while len(sizes) > 1 and sum(sizes) > _BATCH_BYTES:
            del sizes[len(sizes) // 2 :]
        return events[: len(sizes)], sizes


class Emitter:
    """Sends the events of one tenant, on the event loop of `start`."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        tenant: str,
        *,
        max_events: int = 10_000,
        name: Literal["events", "feedback"] = "events",
        personal: PersonalData | None = None,
        principal_key: str = "",
    ) -> None:
        self.sent = 0
        self.dropped = 0
        self.masked: Counter[str] = Counter()
        self._bootstrap = bootstrap
        self._topic = topic(tenant, name)
        self._connects_at_once = name == "events"
        self._max_events = max_events
        self._personal = personal
        self._sign = signer(principal_key)
        self._accepted = 0  # number of the newest entry, for flush
        self.waiting = 0
        self._waiting_bytes = 0
        self._queues = [_PartitionQueue()]  # one until the number of partitions is known
        self._queue_of: dict[str, _PartitionQueue] = {}
        self._flushes: list[tuple[int, asyncio.Event]] = []
        self._hurried = 0
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        # From other threads, in order: session, event, urgency.
        self._handed_over: deque[tuple[str, Encoded, bool]] = deque()

    @property
    def full(self) -> bool:
        waiting = self.waiting + len(self._handed_over)
        return waiting >= self._max_events or self._waiting_bytes >= _MAX_WAITING_BYTES

    async def start(self) -> None:
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        if self._connects_at_once or self.waiting:
            self._connect()

    def _connect(self) -> None:
        self._task = asyncio.create_task(self._run(), name="fleetlore-emitter")

    def emit(self, event: Event, *, at_once: bool = False) -> bool:
        """Buffer a copy of an event, without blocking.

        Returns False if it is dropped: the buffer is full, the emitter closed, or the event cannot be encoded.
        `at_once`: do not wait for a full batch. Raises NotOpen if the loop has ended.
        """
        if self._closed or self.full:
            self.dropped += 1
            return False
        if self.is_stranded:
            self._refuse()
        try:
            encoded = encode(event)
        except Exception as failure:  # the agent must not fail
            self.dropped += 1
            log.warning("an event of session %r cannot be encoded; dropped: %r", event.session, failure)
            return False
        if self._loop is None or self._thread == threading.get_ident():
            self._take_over()
            self._buffer(event.session, encoded, at_once)
            return True
        self._handed_over.append((event.session, encoded, at_once))
        try:
            self._loop.call_soon_threadsafe(self._take_over)
        except RuntimeError:  # the loop ended just now
            self._handed_over.pop()
            self._refuse()
        return True

    @property
    def is_stranded(self) -> bool:
        return self._loop is not None and self._loop.is_closed()

    def _refuse(self) -> NoReturn:
        self.dropped += 1 + self.waiting + len(self._handed_over)
        self._handed_over.clear()
        self._forget_waiting()
        raise NotOpen("the event loop that this fleet was entered in has ended: its events are lost; enter a new fleet")

    def _forget_waiting(self) -> None:
        self.waiting = self._waiting_bytes = 0
        for queue in self._queues:
            queue.entries.clear()

    def _take_over(self) -> None:
        while self._handed_over:
            self._buffer(*self._handed_over.popleft())

    def _buffer(self, session: str, encoded: Encoded, at_once: bool) -> None:
        if self._closed:
            self.dropped += 1
            return
        self._accepted += 1
        self.waiting += 1
        self._waiting_bytes += encoded[0]
        queue = self._queue_of.get(session) or self._find_queue(session)
        entries = queue.entries
        entries.append((self._accepted, session, encoded))
        if self._task is None and self._loop is not None:
            self._connect()
        if len(entries) == 1:
            queue.not_empty.set()
        if at_once or len(entries) == _FULL_BATCH:
            queue.flush_now.set()

    def _find_queue(self, session: str) -> _PartitionQueue:
        if len(self._queue_of) >= _KNOWN_SESSIONS:
            self._queue_of.clear()
        queue = self._queue_of[session] = self._queues[partition_for(session, len(self._queues))]
        return queue

    async def flush(self, timeout_seconds: float, *, hurried: bool = True) -> bool:
        """Wait until all events so far are acknowledged. `hurried` sends partial batches. Return False on time-out."""
        self._take_over()
        if self.waiting == 0:
            return True
        done = asyncio.Event()
        flush = (self._accepted, done)
        self._flushes.append(flush)
        self._hurried += hurried
        self._wake_all(hurried)
        try:
            await asyncio.wait_for(done.wait(), timeout_seconds)
        except TimeoutError:
            return False
        finally:
            self._flushes.remove(flush)
            self._hurried -= hurried
        return True

    async def close(self, timeout_seconds: float = 2.0) -> None:
        """Flush within the limit, then stop. Never hangs."""
        if self._closed:
            return
        runs = self._task is not None and not self.is_stranded
        if runs:
            await self.flush(timeout_seconds)
        self._closed = True
        if runs and self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=3 * STOP_SECONDS)
        self.dropped += self.waiting
        self._forget_waiting()
        if self.dropped:
            log.warning("%d events were dropped: %s did not take them in time", self.dropped, named(self._bootstrap))

    async def _run(self) -> None:
        try:
            await self._deliver_always()
        finally:
            if not self._closed and self.waiting:
                log.warning("%d events are lost: their fleet was not closed before its loop ended", self.waiting)

    async def _deliver_always(self) -> None:
        delays, reported = backoff(), False
        while True:
            before = self.sent
            try:
                await self._deliver()
            except Exception as error:
                if self._closed:  # at the same moment: a task group raises the failure instead
                    return
                failure = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
                if self.sent > before:
                    delays, reported = backoff(), False
                if not reported:
                    log.warning("no events reach %s, they wait in the buffer: %r", named(self._bootstrap), failure)
                    reported = True
            await asyncio.sleep(next(delays))

    async def _deliver(self) -> None:
        # A producer that lost all known addresses never asks the bootstrap servers again.
        producer = make_producer(
            self._bootstrap,
            max_batch_size=_BATCH_BYTES,
            max_request_size=_BATCH_BYTES,
            request_timeout_ms=int(_REQUEST_SECONDS * 1000),
        )
        async with connected(producer):
            async with asyncio.timeout(_REQUEST_SECONDS):
                partitions = await producer.partitions_for(self._topic)
            self._assign(len(partitions))
            # It cancels their batches, or the producer would wait for a dead broker.
            async with asyncio.TaskGroup() as senders:
                for partition, queue in enumerate(self._queues):
                    sender = self._send_queue(producer, partition, queue)
                    senders.create_task(sender, name=f"fleetlore-emitter-{partition}")

    def _assign(self, partitions: int) -> None:
        if len(self._queues) == partitions:
            return
        entries = sorted(entry for queue in self._queues for entry in queue.entries)
        hurried = any(queue.flush_now.is_set() for queue in self._queues)
        self._queues = [_PartitionQueue() for _ in range(partitions)]
        self._queue_of.clear()
        for entry in entries:
            self._queues[partition_for(entry[1], partitions)].entries.append(entry)
        self._wake_all(hurried)

    def _wake_all(self, hurried: bool) -> None:
        for queue in self._queues:
            if queue.entries:
                queue.not_empty.set()
                if hurried:
                    queue.flush_now.set()

    async def _send_queue(self, producer: Any, partition: int, queue: _PartitionQueue) -> None:
        if queue.entries:
            queue.not_empty.set()
        while True:
            await queue.not_empty.wait()
            if len(queue.entries) < _FULL_BATCH and not self._hurried:
                linger = asyncio.get_running_loop().call_later(_LINGER_SECONDS, queue.flush_now.set)
                await queue.flush_now.wait()
                linger.cancel()
            queue.not_empty.clear()
            while queue.entries:
                queue.flush_now.clear()
                await self._send_batch(producer, partition, queue)
                if len(queue.entries) < _FULL_BATCH and not self._hurried:
                    break
            if queue.entries:
                queue.not_empty.set()

    async def _send_batch(self, producer: Any, partition: int, queue: _PartitionQueue) -> None:
        batch = producer.create_batch()
        count = 0
        events, sizes = queue.next_batch()
        masked = mask(events, self._personal)
        for number, value in _records(masked):
            headers = _HEADERS if self._sign is None else [*_HEADERS, self._sign(self._topic, value)]
            if batch.append(timestamp=None, key=None, value=value, headers=headers) is None:
                break  # masks can be longer than the secrets
            count += number
        batch.close()
        check_place(producer, self._bootstrap)
        try:
            await (await producer.send_batch(batch, self._topic, partition=partition))
        except MessageSizeTooLargeError:
            # The broker's limit is below ours.
            if count > 1:
                queue.limit = count // 2
                return
            self.dropped, queue.limit = self.dropped + 1, _BATCH_EVENTS
            log.warning("the broker refuses an event of %d bytes; dropped", sizes[0])
        else:
            self.sent += count
            self.masked += masks_of(events[:count], masked[:count])
        for _ in range(count):
            queue.entries.popleft()
        self.waiting -= count
        self._waiting_bytes -= sum(sizes[:count])
        if self._flushes:
            first = [queue.entries[0][0] for queue in self._queues if queue.entries]
            oldest = min(first, default=self._accepted + 1)
            for last, done in self._flushes:
                if oldest > last:
                    done.set()


def _records(events: list[Encoded]) -> Iterator[tuple[int, bytes]]:
    start = 0
    while start < len(events):
        some = events[start : start + MAX_EVENTS]
        sizes = [event[0] for event in some]
        if sum(sizes) >= MAX_BYTES:
            some = some[: max(1, bisect_left(list(accumulate(sizes)), MAX_BYTES))]
        yield len(some), record(some)
        start += len(some)
