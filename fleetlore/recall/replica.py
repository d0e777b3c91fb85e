"""Keep a tenant's lore in the agent's memory: follow the compacted topics `patterns` and `items`, and hide
what `decisions` revoke and what a distrusted agent says.

What is known stays during an outage: old advice is better than none. But after a week, or where the log was replaced,
it is read anew, for what was forgotten meanwhile has left no trace.

Where all of it does not fit into the memory that an agent gives, what is of its own tools is held, then what is best
backed; the rest is left to a search of the store (`Session.recall`). What is read for the first time is gathered before
it is indexed: the newest, and so mostly the best backed, comes last.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import threading
from functools import lru_cache
from heapq import heapify, heappop, heappush
from sys import intern
from typing import NamedTuple

import msgspec

from fleetlore.clock import Clock, SystemClock
from fleetlore.cluster import Bootstrap
from fleetlore.kafka.client import STOP_SECONDS
from fleetlore.kafka.follower import Fetched, Follower
from fleetlore.kafka.read import read_to_end
from fleetlore.recall.index import LoreIndex
from fleetlore.stats.hashing import stable_hash
from fleetlore.wire.lore import Decision, MemoryItem, Pattern, standing
from fleetlore.wire.principals import principal_of
from fleetlore.wire.topics import topic

__all__ = ["LoreReplica"]

log = logging.getLogger(__name__)

# Bytes of memory for one of JSON, with the texts and groups by which the index finds it; and for an entry besides, 370
# of it for what ranks it here. Traced with logged runs.
_PATTERN_BYTES, _ITEM_BYTES, _ENTRY_BYTES = 2.2, 3.0, 870
# Records decoded between two turns of the event loop: 5 ms.
_BATCH = 100

# Agents of one process read the same bytes: each record is decoded once for all of them. The result is immutable and
# shared; as many are remembered as an agent that lags or joins late may be behind the others.
_DECODED = 1024
_pattern = lru_cache(maxsize=_DECODED)(Pattern.from_json)
_item = lru_cache(maxsize=_DECODED)(MemoryItem.from_json)

# What is gathered is indexed at the latest after so long, as where a partition cannot be read.
_GATHER_SECONDS = 10.0
# An agent that begins to use a tool reads again what was left out of it, but not one tool after the other.
_AGAIN_SECONDS = 60.0


class Backing(NamedTuple):
    """What decides whether an entry is held.

    Attributes:
        tool: whose it is; empty for what is of no tool.
        standing: `fleetlore.wire.lore.standing`.
        bytes: of memory, estimated.
    """

    tool: str
    standing: float
    bytes: int


class _PatternHead(msgspec.Struct):
    tool: str
    agents: int = 0
    sessions: int = 0
    last_seen: float = 0.0


class _ItemHead(msgspec.Struct):
    tool: str = ""
    agents: int = 0
    support: int = 0
    against: int = 0
    last_seen: float = 0.0


# A fifth of the time that all fields take: most of what comes to a full replica is not held.
_pattern_head = msgspec.json.Decoder(_PatternHead).decode
_item_head = msgspec.json.Decoder(_ItemHead).decode


def backing_of_pattern(value: bytes) -> Backing:
    """Read it from a pattern as it lies on its topic. Raises ValueError."""
    head = _pattern_head(value)
    stands = standing(head.agents, head.sessions, 0, head.last_seen)
    return Backing(intern(head.tool), stands, int(_PATTERN_BYTES * len(value)) + _ENTRY_BYTES)


def backing_of_item(value: bytes) -> Backing:
    """Read it from a memory item as it lies on its topic. Raises ValueError."""
    head = _item_head(value)
    stands = standing(head.agents, head.support, head.against, head.last_seen)
    return Backing(intern(head.tool), stands, int(_ITEM_BYTES * len(value)) + _ENTRY_BYTES)


class Bound:
    """Which entries are held.

    Args:
        most_bytes: of memory.

    Attributes:
        left_out: how many entries did not fit, since the topics were last read from their beginning; a newer version
            of one that is left out counts again.
    """

    def __init__(self, most_bytes: float) -> None:
        self.left_out = 0
        self.most_bytes = most_bytes
        self._bytes = 0
        self._held: dict[str, Backing] = {}
        self._own_tools: set[str] = set()
        self._tools_left_out: set[str] = set()
        # The weakest first, with entries that have changed since; empty until something is left out.
        self._weakest: list[tuple[int, float, str]] = []

    def __contains__(self, id: str) -> bool:
        """Whether an entry is held."""
        return id in self._held

    def prefer(self, tool: str) -> bool:
        """Hold what is of this tool before anything else; say whether some of that was left out before."""
        if tool in self._own_tools:
            return False
        self._own_tools.add(tool)
        self._weakest.clear()
        return tool in self._tools_left_out

    def take(self, id: str, backing: Backing) -> list[str]:
        """Hold an entry, or its newer version. Returns ids of what is to go for it; it may be the entry itself."""
        self.drop(id)
        self._held[id] = backing
        self._bytes += backing.bytes
        if len(self._weakest) > 2 * len(self._held):
            self._weakest.clear()
        elif self._weakest:
            heappush(self._weakest, self._rank(id, backing))
        gone: list[str] = []
        while self._bytes > self.most_bytes:
            gone.append(self._drop_weakest())
        return gone

    def drop(self, id: str) -> None:
        """Forget an entry; unknown ids are fine."""
        backing = self._held.pop(id, None)
        if backing is not None:
            self._bytes -= backing.bytes

    def start_over(self) -> None:
        """Count what is left out anew: the topics are read from their beginning."""
        self.left_out = 0
        self._tools_left_out.clear()

    def forget_all(self) -> None:
        """Forget all entries; whose tools come first stays known."""
        self.start_over()
        self._held.clear()
        self._weakest.clear()
        self._bytes = 0

    def _drop_weakest(self) -> str:
        if not self._weakest:
            self._weakest = [self._rank(id, backing) for id, backing in self._held.items()]
            heapify(self._weakest)
        while True:
            rank = heappop(self._weakest)
            backing = self._held.get(rank[-1])
            if backing is not None and self._rank(rank[-1], backing) == rank:
                self.drop(rank[-1])
                self.left_out += 1
                self._tools_left_out.add(backing.tool)
                return rank[-1]

    def _rank(self, id: str, backing: Backing) -> tuple[int, float, str]:
        return 2 if backing.tool in self._own_tools else 0 if backing.tool else 1, backing.standing, id


class LoreReplica:
    """Follows from `start()` to `close()`; survives broker outages.

    Args:
        bootstrap: Kafka bootstrap servers.
        fetch_wait_ms: how long the broker may hold a fetch open; lower is sooner and costs more requests.
        most_bytes: of memory that the index may take, estimated; None for all lore, as a console shows it.
        lock: is held while the index changes, for readers on other threads.

    Attributes:
        index: all lore known so far.
        topics: followed.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        tenant: str,
        *,
        fetch_wait_ms: int = 50,
        clock: Clock | None = None,
        most_bytes: float | None = None,
        lock: threading.RLock | None = None,
    ) -> None:
        self.index = LoreIndex()
        self._refused = 0
        self.topics = (topic(tenant, "patterns"), topic(tenant, "items"), topic(tenant, "decisions"))
        self._clock = clock or SystemClock()
        self._lock = lock or threading.RLock()
        self._follower = Follower(
            bootstrap,
            self.topics,
            self._take,
            what="lore",
            fetch_wait_ms=fetch_wait_ms,
            most=_BATCH,
            complete=self._put_gathered,
            outdated=self._forget,
            clock=self._clock,
        )
        self._bound = None if most_bytes is None else Bound(most_bytes)
        # By id: the topic and the record.
        self._gathered: dict[str, tuple[str, bytes]] = {}
        self._gathers_since = 0.0
        self._wants_more = False
        self._read_again_at = -_AGAIN_SECONDS
        self._said = False
        self._task: asyncio.Task[None] | None = None

    @property
    def loaded(self) -> bool:
        """Whether all lore that existed when the broker first answered is known here."""
        return self._follower.loaded and not self._gathered

    @property
    def unreadable(self) -> int:
        """How many records were skipped: damaged, or written by another version of fleetlore."""
        return self._refused + self._follower.skipped

    @property
    def left_out(self) -> int:
        """How many patterns and items did not fit (`Bound.left_out`)."""
        return self._bound.left_out if self._bound is not None else 0

    def uses(self, tool: str) -> None:
        """Hold what is of this tool before what is of others: the agent uses it."""
        if self._bound is not None and self._bound.prefer(tool):
            self._wants_more = True

    async def start(self) -> None:
        """Begin to follow; returns at once, whether or not the broker answers."""
        self._task = asyncio.create_task(self._follower.run(), name="fleetlore-replica")

    async def close(self) -> None:
        """Stop following; what is known stays readable. Never hangs."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=3 * STOP_SECONDS)
            self._task = None

    @property
    def age_seconds(self) -> float:
        """Since the broker last answered."""
        return self._follower.age_seconds

    async def caught_up(self, timeout_seconds: float) -> bool:
        """Wait until all that the topics hold at this moment is known here; False when the time is up."""
        try:
            async with asyncio.timeout(timeout_seconds):
                caught_up = await self._follower.caught_up(None)
                while caught_up and self._gathered:
                    await asyncio.sleep(0.01)
                return caught_up
        except TimeoutError:
            return False

    @classmethod
    async def snapshot(cls, bootstrap: Bootstrap, tenant: str, *, timeout_seconds: float = 10.0) -> LoreIndex:
        """Read all lore once, for a command that shows it.

        Raises:
            BrokerUnavailable: it could not be read within the time.
        """
        replica = cls(bootstrap, tenant)
        for record in await read_to_end(bootstrap, replica.topics, timeout_seconds):
            replica._apply(record.topic, record.key, record.value)
        return replica.index

    async def _take(self, fetched: Fetched) -> None:
        gathers = not self._follower.loaded
        for part, records in fetched.items():
            # An agent that is behind meets many versions of a key at once, and only the last of them counts.
            newest = {record.key: record.value for record in records}
            with self._lock:
                for key, value in newest.items():
                    self._receive(part.topic, key, value, gathers)
        if self._gathered and self._clock.monotonic() - self._gathers_since >= _GATHER_SECONDS:
            await self._put_gathered()
        if self._bound is not None:
            self._mind_bound(self._bound)

    def _receive(self, topic_name: str, key: bytes | None, value: bytes | None, gathers: bool) -> None:
        """Take a record, where there is a bound only if it is better backed than what it would have to go for."""
        bound, id = self._bound, (key or b"").decode(errors="replace")
        if bound is None or topic_name == self.topics[2]:
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
            self.index.forget_pattern(gone)
            self.index.forget_item(gone)
        if id in bound and not gathers:
            self._apply(topic_name, key, value)
        elif id in bound:
            if not self._gathered:
                self._gathers_since = self._clock.monotonic()
            self._gathered[id] = topic_name, value

    async def _put_gathered(self) -> None:
        if not self._gathered:
            return
        while self._gathered:
            with self._lock:
                for _ in range(min(_BATCH, len(self._gathered))):
                    id, (topic_name, value) = self._gathered.popitem()
                    self._apply(topic_name, id.encode(), value)
            await asyncio.sleep(0)
        # What the fetches took, up to a third of what is held, stays with the process otherwise.
        with contextlib.suppress(OSError, AttributeError):  # only glibc has it
            await asyncio.to_thread(ctypes.CDLL(None).malloc_trim, 0)

    def _mind_bound(self, bound: Bound) -> None:
        """Say once that lore was left out; read again what was, where the agent turned out to use its tool."""
        if bound.left_out and self.loaded and not self._said:
            self._said = True
            log.warning(
                "%d patterns and items do not fit into FLEETLORE_REPLICA_MB=%g; Session.recall searches the store",
                bound.left_out,
                bound.most_bytes / 1e6,
            )
        now = self._clock.monotonic()
        if self._wants_more and self.loaded and now - self._read_again_at >= _AGAIN_SECONDS:
            self._wants_more, self._read_again_at = False, now
            bound.start_over()
            for name in self.topics[:2]:
                self._follower.rewind(name)

    def _forget(self) -> None:
        """Forget all: what was erased while this was away has left no trace on the topics."""
        with self._lock:
            self.index.forget_all()
            self._gathered.clear()
            if self._bound is not None:
                self._bound.forget_all()

    def _apply(self, topic_name: str, key: bytes | None, value: bytes | None) -> None:
        index, is_pattern = self.index, topic_name == self.topics[0]
        try:
            if topic_name == self.topics[2]:
                self._obey(value)
            elif value is None:
                forget = index.forget_pattern if is_pattern else index.forget_item
                forget((key or b"").decode())
            elif is_pattern:
                index.put_pattern(_pattern(value))
            else:
                index.put_item(_item(value))
        except (ValueError, TypeError, KeyError, AttributeError):
            self._cannot_read(topic_name)

    def _cannot_read(self, topic_name: str) -> None:
        self._refused += 1
        if self._refused == 1:
            log.warning("a record on %s cannot be read by this version of fleetlore; skipped", topic_name)

    def _obey(self, value: bytes | None) -> None:
        if value is None:
            return  # a decision that is taken back is a record too
        decided = Decision.from_json(value)
        if decided.kind == "agent":
            agent = stable_hash(principal_of(decided.id))
            (self.index.distrust if decided.on else self.index.undo_distrust)(agent)
        else:
            (self.index.revoke if decided.on else self.index.undo_revoke)(decided.id)
