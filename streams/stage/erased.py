"""Know what was erased, and drop it wherever it comes again: from the log, from an agent that was away, in a backfill.

Every stage of a process asks one `Erased`. It is told by the topic `erasures`, and by the `Forget` that goes to the
owner of each state that knows an erased session.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from fleetlore.clock import Clock
from fleetlore.cluster import Bootstrap
from fleetlore.kafka.follower import Fetched, Follower
from fleetlore.kafka.read import read_to_end
from fleetlore.stats.hashing import stable_hash
from fleetlore.wire.erasure import Erasure
from fleetlore.wire.topics import tenant_of, topic
from fleetlore.wire.trajectory import encode

log = logging.getLogger(__name__)

TOPIC = "erasures"
READ_SECONDS = 30.0

_hash = lru_cache(maxsize=16_384)(stable_hash)


class Forget(msgspec.Struct, frozen=True, gc=False, tag="forget"):
    """Asks the owner of a state to forget sessions. It travels beside the contributions, on their topic.

    Attributes:
        id: of the pattern or the item; empty on `trajectories`, where all records of judges are meant.
        sessions: hashes of their ids.
    """

    id: str
    sessions: tuple[int, ...]

    def to_json(self) -> bytes:
        return encode(self)


class Erased:
    """What was erased, by tenant.

    Attributes:
        count: grows with every erasure; where it is 0 nothing need be asked.
    """

    def __init__(self) -> None:
        self.count = 0
        self._sessions: defaultdict[str, set[int]] = defaultdict(set)
        self._agents: defaultdict[str, dict[int, float]] = defaultdict(dict)

    def add(self, tenant: str, erasure: Erasure) -> None:
        """Take an erasure in."""
        self.add_sessions(tenant, erasure.sessions)
        if erasure.agent is not None and erasure.before > self._agents[tenant].get(erasure.agent, 0.0):
            self._agents[tenant][erasure.agent] = erasure.before
            self.count += 1

    def add_sessions(self, tenant: str, sessions: Iterable[int]) -> None:
        """Take in sessions by the hashes of their ids."""
        known = self._sessions[tenant]
        before = len(known)
        known.update(sessions)
        self.count += len(known) > before

    def has(self, tenant: str, session: int) -> bool:
        """Whether the session of this hash is erased."""
        return session in self._sessions.get(tenant, ())

    def holds(self, tenant: str, session: str) -> bool:
        """Whether a session, or a part of one, is erased."""
        return self.has(tenant, _hash(session))

    def drops(self, tenant: str, session: str, agent: str, time: float) -> bool:
        """Whether an event is of something erased."""
        return self.has(tenant, _hash(session)) or time < self._agents.get(tenant, {}).get(_hash(agent), 0.0)

    def take(self, tenant: str, value: bytes | None) -> None:
        """Take in a record of the topic; what is none is logged."""
        if value is None:
            return
        try:
            self.add(tenant, Erasure.from_json(value))
        except ValueError as error:
            log.warning("no erasure of tenant %s: %s", tenant, error)

    async def read(self, bootstrap: Bootstrap, tenants: Iterable[str]) -> None:
        """Take in all that the topics hold now.

        Raises:
            BrokerUnavailable: they cannot be read.
        """
        for record in await read_to_end(bootstrap, _topics(tenants), READ_SECONDS):
            self.take(tenant_of(record.topic), record.value)

    async def follow(self, bootstrap: Bootstrap, tenants: Iterable[str], clock: Clock, fetch_wait_ms: int) -> None:
        """Take in what comes, until cancelled, across outages."""

        async def take(fetched: Fetched) -> None:
            for part, records in fetched.items():
                for record in records:
                    self.take(tenant_of(part.topic), record.value)

        await Follower(
            bootstrap, _topics(tenants), take, what="erasures", fetch_wait_ms=fetch_wait_ms, clock=clock
        ).run()


def _topics(tenants: Iterable[str]) -> list[str]:
    return [topic(tenant, TOPIC) for tenant in tenants]
