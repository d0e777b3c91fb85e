"""Keep a tenant's lore in the agent's memory: follow the topics `patterns`, `items` and `decisions`.

After a week, or if the log was replaced, it is read anew, because tombstones are gone.

An agent begins with the newest records, and a second consumer reads older ones. If they are many, it is ready before
all are read. An older record is shown once all are read, because a later one may be its tombstone.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import threading
from collections.abc import Coroutine, Mapping
from functools import lru_cache, partial
from math import inf
from typing import Any

from aiokafka import TopicPartition

from fleetlore.clock import Clock, SystemClock
from fleetlore.cluster import Bootstrap
from fleetlore.kafka.client import STOP_SECONDS
from fleetlore.kafka.read import Fetched, Follower, read_to_end
from fleetlore.recall.bound import Bound, backing_of_item, backing_of_pattern
from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import Decision, MemoryItem, Pattern
from fleetlore.wire.principals import principal_of
from fleetlore.wire.stats import stable_hash
from fleetlore.wire.topics import topic

__all__ = ["LoreReplica"]

log = logging.getLogger(__name__)
_BATCH = 100  # records, 5 ms

# Agents of one process share as many decoded records as a late agent may lag.
_DECODED = 1024
_pattern = lru_cache(maxsize=_DECODED)(Pattern.from_json)
_item = lru_cache(maxsize=_DECODED)(MemoryItem.from_json)

# The first records are shown together after this long.
_GATHER_SECONDS = 10.0
# Least time between readings of left-out lore for newly used tools.
_AGAIN_SECONDS = 60.0


class LoreReplica:
    """Follows from `start()` to `close()`, and survives broker outages.

    Args:
        most_bytes: estimated memory of the index; default: all lore.
        lock: held while the index changes, for readers on other threads.

    Attributes:
        newest_records: how far before the ends, over all partitions, it begins.
        awaited_records: older records that are read before it is `loaded`.
        pause_seconds: between later fetches of older records, which then take a quarter of a core at most.
    """

    newest_records = 15_000
    awaited_records = 30_000
    pause_seconds = 0.005

    def __init__(
        self,
        bootstrap: Bootstrap,
        tenant: str,
        *,
        fetch_wait_ms: int = 50,
        clock: Clock | None = None,
        most_bytes: float = inf,
        lock: threading.RLock | None = None,
    ) -> None:
        self.index = LoreIndex()
        self._refused = 0
        self._hints: list[Decision] = []  # of the fetch that is being read
        self.topics = (topic(tenant, "patterns"), topic(tenant, "items"), topic(tenant, "decisions"))
        self._clock = clock or SystemClock()
        self._lock = lock or threading.RLock()
        follow = partial(Follower, bootstrap, fetch_wait_ms=fetch_wait_ms, most=_BATCH, clock=self._clock)
        self._follower: Follower = follow(
            self.topics, self._take, what="lore", complete=self._complete, outdated=self._forget, begin=self._begin
        )
        # A relay serves only this set of topics.
        self._make_reader = partial(follow, self.topics, self._take_older, what="older lore", complete=self._end_older)
        self._gathers = True
        # Offsets before which records are older ones.
        self._older: dict[TopicPartition, int] = {}
        self._awaited = 0
        # Hashes of the keys with a newer record, while older ones are read.
        self._seen: set[int] = set()
        self._reader: asyncio.Task[None] | None = None
        self._bound = Bound(most_bytes)
        self._gathered: dict[str, tuple[str, bytes]] = {}
        self._gathers_since = 0.0
        self._wants_more = False
        self._read_again_at = -_AGAIN_SECONDS
        self._warned = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def loaded(self) -> bool:
        """Whether the existing lore is here, or if it is much, the newest part."""
        return self._follower.loaded and not self._gathers and (not self._older or self._awaited <= 0)

    @property
    def unreadable(self) -> int:
        """Number of skipped records."""
        return self._refused + self._follower.skipped

    @property
    def left_out(self) -> int:
        return self._bound.left_out

    def uses(self, tool: str) -> None:
        if self._bound.prefer(tool):
            self._wants_more = True

    async def start(self) -> None:
        self._spawn(self._follower.run(), "fleetlore-replica")

    async def close(self) -> None:
        """The lore stays readable. Never hangs."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=3 * STOP_SECONDS)
        self._reader = None

    @property
    def age_seconds(self) -> float:
        return self._follower.age_seconds

    async def caught_up(self, timeout_seconds: float) -> bool:
        """Wait until it is `loaded` as of now. Return False on time-out."""
        try:
            async with asyncio.timeout(timeout_seconds):
                caught_up = await self._follower.caught_up(None)
                while caught_up and not self.loaded:
                    await asyncio.sleep(0.01)
                return caught_up
        except TimeoutError:
            return False

    @classmethod
    async def snapshot(cls, bootstrap: Bootstrap, tenant: str, *, timeout_seconds: float = 10.0) -> LoreIndex:
        replica = cls(bootstrap, tenant)
        for record in await read_to_end(bootstrap, replica.topics, timeout_seconds):
            replica._apply(record.topic, record.key, record.value)
        replica._put_hints()
        return replica.index

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _begin(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self._stop_reading_older()
        parts = [part for part in ends if part.topic in self.topics[:2]]
        records = self.newest_records // max(1, len(parts))
        self._older = {part: ends[part] - records for part in parts if ends[part] > records}
        self._awaited, self._gathers = self.awaited_records, True
        return self._older

    async def _complete(self) -> None:
        if self._gathers:
            self._gathers = False
            await self._put_gathered()
        if self._older and self._reader is None:
            self._reader = self._spawn(self._make_reader().run(), "fleetlore-replica-older")

    async def _take(self, fetched: Fetched) -> None:
        self._mind_bound()
        for part, records in fetched.items():
            newest = {record.key: record.value for record in records}
            if self._older and part.topic in self.topics[:2]:
                self._seen.update(map(hash, newest))
            self._receive(part.topic, newest, self._gathers)
        if self._gathers and self._gathered and self._clock.monotonic() - self._gathers_since >= _GATHER_SECONDS:
            await self._put_gathered()

    async def _take_older(self, fetched: Fetched) -> None:
        for part, records in fetched.items():
            end, seen = self._older.get(part, 0), self._seen
            newest = {each.key: each.value for each in records if each.offset < end and hash(each.key) not in seen}
            self._receive(part.topic, newest, gathers=True)
            self._awaited -= len(records)
        if self._awaited <= 0:
            await asyncio.sleep(self.pause_seconds)

    async def _end_older(self) -> None:
        await self._put_gathered()
        self._stop_reading_older()

    def _stop_reading_older(self) -> None:
        self._older, self._seen = {}, set()
        self._gathered.clear()
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None

    def _receive(self, topic_name: str, records: Mapping[bytes | None, bytes | None], gathers: bool) -> None:
        with self._lock:
            for key, value in records.items():
                self._receive_one(topic_name, key, value, gathers)
            self._put_hints()

    def _receive_one(self, topic_name: str, key: bytes | None, value: bytes | None, gathers: bool) -> None:
        bound, id = self._bound, (key or b"").decode(errors="replace")
        if topic_name == self.topics[2]:
            self._apply(topic_name, key, value)
            return
        self._gathered.pop(id, None)
        if value is None:
            bound.drop(id)
            self._apply(topic_name, key, value)
            return
        try:
            backing = (backing_of_pattern if topic_name == self.topics[0] else backing_of_item)(value)
        except ValueError:
            self._cannot_read(topic_name)
            return
        for gone in bound.take(id, backing):
            self._gathered.pop(gone, None)
            if not gathers:  # older lore stays until better one is shown
                self.index.forget(gone)
        if id in bound and not gathers:
            self._apply(topic_name, key, value)
        elif id in bound:
            if not self._gathered:
                self._gathers_since = self._clock.monotonic()
            self._gathered[id] = topic_name, value

    async def _put_gathered(self) -> None:
        with self._lock:
            self.index.retain(self._bound)
        while self._gathered:
            with self._lock:
                for _ in range(min(_BATCH, len(self._gathered))):
                    id, (topic_name, value) = self._gathered.popitem()
                    self._apply(topic_name, id.encode(), value)
            await asyncio.sleep(0)
        # Otherwise the process keeps the fetches' memory, a third of the lore.
        with contextlib.suppress(OSError, AttributeError):  # only glibc has it
            await asyncio.to_thread(ctypes.CDLL(None).malloc_trim, 0)

    def _mind_bound(self) -> None:
        bound = self._bound
        if self._older or not self.loaded:
            return
        if bound.left_out and not self._warned:
            self._warned = True
            log.warning(
                "%d patterns and items do not fit into FLEETLORE_REPLICA_MB=%g; Session.recall searches the store",
                bound.left_out,
                bound.most_bytes / 1e6,
            )
        now = self._clock.monotonic()
        if self._wants_more and now - self._read_again_at >= _AGAIN_SECONDS:
            self._wants_more, self._read_again_at = False, now
            bound.start_over()
            positions = self._follower.positions
            self._older = {part: end for part, end in positions.items() if part.topic in self.topics[:2]}
            self._awaited = 0

    def _forget(self) -> None:
        with self._lock:
            self.index.retain()
            self.index.forget_hints()
            self._gathered.clear()
            self._bound.forget_all()

    def _apply(self, topic_name: str, key: bytes | None, value: bytes | None) -> None:
        index = self.index
        try:
            if topic_name == self.topics[2]:
                self._obey(key, value)
            elif value is None:
                index.forget((key or b"").decode())
            elif topic_name == self.topics[0]:
                index.put_pattern(_pattern(value))
            else:
                index.put_item(_item(value))
        except Exception:  # the records behind it are read
            self._cannot_read(topic_name)

    def _cannot_read(self, topic_name: str) -> None:
        self._refused += 1
        if self._refused == 1:
            log.warning("a record on %s cannot be read by this version of fleetlore; skipped", topic_name)

    def _put_hints(self) -> None:
        """Put the hints of a fetch together: each time all are sorted, 8 s for 4,000 one by one."""
        if self._hints:
            self.index.put_hint(*self._hints)
            self._hints.clear()

    def _obey(self, key: bytes | None, value: bytes | None) -> None:
        if value is None:  # a hint whose author was erased
            self._put_hints()
            self.index.forget_hints((key or b"").decode().removeprefix("hint/"))
            return
        self._put_decision(Decision.from_json(value))

    def obey(self, decided: Decision) -> None:
        """Put a decision that the broker has before it is read from there."""
        with self._lock:
            self._put_decision(decided)
            self._put_hints()

    def _put_decision(self, decided: Decision) -> None:
        if decided.kind == "hint":
            self._hints.append(decided)
        elif decided.kind == "agent":
            agent = stable_hash(principal_of(decided.id))
            (self.index.distrust if decided.on else self.index.undo_distrust)(agent)
        else:
            self.index.revoke(decided.id, decided.wording, on=decided.on)
