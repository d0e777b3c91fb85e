"""Track what was erased, and drop it wherever it comes again: from the log, from an agent that was away, in a backfill.

All stages of a process share one `Erased`. It learns of erasures from the topic `erasures`, and from the `Forget` that
goes to the owner of each state that an erased session contributed to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from fleetlore.stats.hashing import stable_hash
from fleetlore.wire.trajectory import encode
from streams.stage.operator_topic import OperatorTopic


class Erasure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is erased: a session, or what an agent did before a moment; a record of the compacted topic `erasures`.

    It names nothing: it holds hashes (`fleetlore.stats.hashing.stable_hash`), and stays for ever.

    Attributes:
        time: when it was asked for, in seconds since the Unix epoch.
        sessions: hashes of the session's id and of the ids of its parts; empty where an agent is meant.
        agent: hash of the agent's name.
        before: of an agent: its events before this moment are dropped, in seconds since the Unix epoch.
    """

    time: float
    sessions: tuple[int, ...] = ()
    agent: int | None = None
    before: float = 0.0

    @property
    def key(self) -> str:
        """Key of its record on `erasures`."""
        return f"session/{self.sessions[0]:x}" if self.sessions else f"agent/{self.agent or 0:x}"

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, value: bytes) -> Erasure:
        """Raises msgspec.DecodeError (a ValueError) for what is no erasure."""
        return msgspec.json.decode(value, type=cls)


TOPIC = "erasures"

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


class Erased(OperatorTopic):
    """What was erased, by tenant.

    Attributes:
        count: grows with every erasure; where it is 0 nothing need be asked.
    """

    topic = TOPIC

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

    def decode(self, tenant: str, value: bytes) -> None:
        self.add(tenant, Erasure.from_json(value))
