"""Keep a tenant's lore in the agent's memory: follow the compacted topics `patterns` and `items`, and hide
what `decisions` revoke and what a distrusted agent says.

What is known stays during an outage: old advice is better than none. But after a week it is read anew, for what was
forgotten meanwhile has left no trace.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from functools import lru_cache

from fleetlore.clock import Clock, SystemClock
from fleetlore.cluster import Bootstrap
from fleetlore.kafka.client import STOP_SECONDS
from fleetlore.kafka.follower import Fetched, Follower
from fleetlore.kafka.read import read_to_end
from fleetlore.recall.index import LoreIndex
from fleetlore.stats.hashing import stable_hash
from fleetlore.wire.decision import TOPIC, Decision
from fleetlore.wire.lore import MemoryItem, Pattern
from fleetlore.wire.topics import topic

__all__ = ["LoreReplica"]

log = logging.getLogger(__name__)

# Records decoded between two turns of the event loop: 5 ms.
_BATCH = 100

# Agents of one process read the same bytes: each record is decoded once for all of them. The result is immutable and
# shared; as many are remembered as an agent that lags or joins late may be behind the others.
_DECODED = 4096
_pattern = lru_cache(maxsize=_DECODED)(Pattern.from_json)
_item = lru_cache(maxsize=_DECODED)(MemoryItem.from_json)


class LoreReplica:
    """Follows from `start()` to `close()`; survives broker outages.

    Args:
        bootstrap: Kafka bootstrap servers.
        fetch_wait_ms: how long the broker may hold a fetch open; lower is sooner and costs more requests.
        group: of the agent: items that only another group has found are left out; empty for an agent of none, None to
            know all.
        lock: is held while the index changes, for readers on other threads.

    Attributes:
        index: all lore known so far.
        topics: followed.
        unreadable: records skipped because this version of fleetlore cannot read them.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        tenant: str,
        *,
        fetch_wait_ms: int = 50,
        clock: Clock | None = None,
        group: str | None = None,
        lock: threading.RLock | None = None,
    ) -> None:
        self.index = LoreIndex()
        self.unreadable = 0
        self.topics = (topic(tenant, "patterns"), topic(tenant, "items"), topic(tenant, TOPIC))
        self._clock = clock or SystemClock()
        self._group = group
        self._lock = lock or threading.RLock()
        self._follower = Follower(
            bootstrap,
            self.topics,
            self._take,
            what="lore",
            fetch_wait_ms=fetch_wait_ms,
            most=_BATCH,
            outdated=self._forget,
            clock=self._clock,
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def loaded(self) -> bool:
        """Whether all lore that existed when the broker first answered is known here."""
        return self._follower.loaded

    def learned_at(self, id: str) -> float | None:
        """When (wall time, seconds) a pattern or item first became known here; None if it has not."""
        return self.index.learned_at(id)

    async def start(self) -> None:
        """Begin to follow; returns at once, whether or not the broker answers."""
        self._task = asyncio.create_task(self._follower.run(), name="fleetlore-replica")

    async def close(self) -> None:
        """Stop following; what is known stays readable. Never hangs."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=3 * STOP_SECONDS)
            self._task = None

    async def caught_up(self, timeout_seconds: float) -> bool:
        """Wait until all that the topics hold at this moment is known here; False when the time is up."""
        return await self._follower.caught_up(timeout_seconds)

    def tells(self, item: MemoryItem) -> bool:
        """Whether the agent's group may know an item."""
        return self._group in (None, item.group) or not item.group

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
        for part, records in fetched.items():
            # An agent that is behind meets many versions of a key at once, and only the last of them counts.
            newest = {record.key: record.value for record in records}
            with self._lock:
                for key, value in newest.items():
                    self._apply(part.topic, key, value)

    def _forget(self) -> None:
        """Forget all: what was erased while this was away has left no trace on the topics."""
        with self._lock:
            self.index.forget_all()

    def _apply(self, topic_name: str, key: bytes | None, value: bytes | None) -> None:
        index, now, is_pattern = self.index, self._clock.now(), topic_name == self.topics[0]
        try:
            if topic_name == self.topics[2]:
                self._obey(value, now)
            elif value is None:
                forget = index.forget_pattern if is_pattern else index.forget_item
                forget((key or b"").decode())
            elif is_pattern:
                index.put_pattern(_pattern(value), now)
            elif self.tells(item := _item(value)):
                index.put_item(item, now)
            else:
                index.forget_item(item.id)
        except (ValueError, TypeError, KeyError, AttributeError):
            self.unreadable += 1
            if self.unreadable == 1:
                log.warning("a record on %s cannot be read by this version of fleetlore; skipped", topic_name)

    def _obey(self, value: bytes | None, now: float) -> None:
        if value is None:
            return  # a decision that is taken back is a record too
        decided = Decision.from_json(value)
        if decided.kind == "agent":
            if decided.on:
                self.index.distrust(stable_hash(decided.id))
            else:
                self.index.undo_distrust(stable_hash(decided.id), now)
        elif decided.on:
            self.index.revoke(decided.id)
        else:
            self.index.undo_revoke(decided.id, now)
