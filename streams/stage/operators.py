"""Track operators' decisions: erased sessions and distrusted agents. Compacted topics carry them.

Erased sessions are dropped wherever they reappear: on the log, from a returning agent, in a backfill. Events of a
distrusted agent are kept for an undo.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar

from msgspec.structs import replace

from fleetlore.clock import Clock
from fleetlore.cluster import Bootstrap
from fleetlore.kafka.read import Fetched, Follower, read_to_end
from fleetlore.limits import refused
from fleetlore.wire.decode import json_reader
from fleetlore.wire.lore import DECISIONS, Decision
from fleetlore.wire.principals import id_key, principal_of, session_key
from fleetlore.wire.stats import cached_hash, stable_hash
from fleetlore.wire.topics import tenant_of, topic
from fleetlore.wire.trajectory import JsonStruct, Moment
from streams.stage.base import readable

__all__ = ["ERASURES", "Adopt", "Erased", "Erasure", "Forget", "Operators", "Reconsider", "put_in_history", "without"]

ERASURES = "erasures"
_READ_SECONDS = 30.0


_ERASED = "(erased)"


def without(decided: Decision, means: Callable[[str], bool]) -> Decision:
    """Return a decision without the reason of an erased decider and without the hint of an erased author."""
    if decided.by != _ERASED and means(decided.by):
        decided = replace(decided, by=_ERASED, why="")
    return replace(decided, hint=None) if decided.hint is not None and means(decided.hint.author) else decided


def put_in_history(known: dict[str, Decision], value: bytes) -> None:
    """Add the decisions of a record, keyed by thing and time. A copy that an erasure made replaces its original."""
    for decided in readable(value, Decision.from_json):
        old = known.get(decided.moment, decided)
        author = old.hint.author if old.hint is not None else old.by
        copies = [without(old, each.__contains__) for each in ((), (old.by,), (author,), (old.by, author))]
        known[decided.moment if decided in copies else f"{decided.moment} {len(known)}"] = decided


class Erasure(JsonStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A record of the compacted topic `erasures`. It holds hashes (`stable_hash`) and no names, and never expires.

    `time`: of the request. `sessions`: keys of a session and its parts, or of an id (`id_key`) if all of it are erased.
    `agent`: instead, an agent whose events before `before` are dropped.
    """

    time: Moment
    sessions: tuple[int, ...] = ()
    agent: int | None = None
    before: Moment = 0.0

    @property
    def key(self) -> str:
        return f"session/{self.sessions[0]:x}" if self.sessions else f"agent/{self.agent or 0:x}"


class _Request(JsonStruct, frozen=True, gc=False, tag=str.lower):
    id: str


class Forget(_Request, frozen=True, gc=False):
    """Asks to forget sessions (hashes of their ids)."""

    sessions: tuple[int, ...]


class Reconsider(_Request, frozen=True, gc=False):
    """Asks to publish the state again after a change of trust."""

    decision: Decision


class Adopt(_Request, frozen=True, gc=False):
    """Asks to merge in a row of an exported file."""

    body: str
    state: str


class _OperatorTopic(ABC):
    topic: ClassVar[str]

    @abstractmethod
    def _decode(self, tenant: str, value: bytes) -> None:
        """Raises ValueError: the value does not belong to the topic."""

    def take(self, tenant: str, value: bytes | None) -> None:
        if value is None:
            return
        try:
            self._decode(tenant, value)
        except ValueError as error:
            refused(f"unreadable_{self.topic}", f"a record of {self.topic} of tenant {tenant} cannot be read: {error}")

    async def read(self, bootstrap: Bootstrap, tenants: Iterable[str]) -> None:
        """Read the topics up to their current end. Raises BrokerUnavailable."""
        for record in await read_to_end(bootstrap, self._topics(tenants), _READ_SECONDS):
            self.take(tenant_of(record.topic), record.value)

    async def follow(self, bootstrap: Bootstrap, tenants: Iterable[str], clock: Clock, fetch_wait_ms: int) -> None:
        async def take(fetched: Fetched) -> None:
            for record in chain.from_iterable(fetched.values()):
                self.take(tenant_of(record.topic), record.value)

        names, what = self._topics(tenants), self.topic
        await Follower(bootstrap, names, take, what=what, fetch_wait_ms=fetch_wait_ms, clock=clock).run()

    def _topics(self, tenants: Iterable[str]) -> list[str]:
        return [topic(tenant, self.topic) for tenant in tenants]


class Erased(_OperatorTopic):
    """With a `count` of 0, callers skip every check."""

    topic = ERASURES

    def __init__(self) -> None:
        self.count = 0
        self._sessions: defaultdict[str, set[int]] = defaultdict(set)
        self._agents: defaultdict[str, dict[int, float]] = defaultdict(dict)

    def add_sessions(self, tenant: str, sessions: Iterable[int]) -> None:
        known = self._sessions[tenant]
        before = len(known)
        known.update(sessions)
        self.count += len(known) > before

    def has(self, tenant: str, session: int) -> bool:
        return session in self._sessions.get(tenant, ())

    def sessions(self, tenant: str) -> frozenset[int]:
        return frozenset(self._sessions.get(tenant, ()))

    def has_any(self, tenant: str) -> bool:
        return tenant in self._sessions or tenant in self._agents

    def holds(self, tenant: str, agent: str, session: str) -> bool:
        """Whether a session is erased: as its agent's, or with all sessions of that id (earlier releases: its id)."""
        names = session_key(agent, session), id_key(session), session
        return any(self.has(tenant, cached_hash(name)) for name in names)

    def drops(self, tenant: str, session: str, agent: str, time: float) -> bool:
        return self.holds(tenant, agent, session) or time < self._agents.get(tenant, {}).get(cached_hash(agent), 0.0)

    def _decode(self, tenant: str, value: bytes) -> None:
        erasure = json_reader(Erasure)(value)
        self.add_sessions(tenant, erasure.sessions)
        if erasure.agent is not None and erasure.before > self._agents[tenant].get(erasure.agent, 0.0):
            self._agents[tenant][erasure.agent] = erasure.before
            self.count += 1


class Distrusted(_OperatorTopic):
    """A decision about a principal covers all its agents."""

    topic = DECISIONS

    def __init__(self) -> None:
        self._newest: defaultdict[str, dict[str, Decision]] = defaultdict(dict)
        self._agents: dict[str, frozenset[int]] = {}

    def decided(self, tenant: str) -> list[Decision]:
        return list(self._newest.get(tenant, {}).values())

    def agents(self, tenant: str) -> frozenset[int]:
        return self._agents.get(tenant, frozenset())

    def add(self, tenant: str, decided: Decision) -> None:
        known, agent = self._newest[tenant], principal_of(decided.id)
        before = known.get(agent)
        if decided.kind != "agent" or (before and (decided.time, decided.on) <= (before.time, before.on)):
            return
        known[agent] = decided
        self._agents[tenant] = frozenset(stable_hash(agent) for agent, each in known.items() if each.on)

    def _decode(self, tenant: str, value: bytes) -> None:
        self.add(tenant, Decision.from_json(value))


@dataclass(frozen=True, slots=True)
class Operators:
    erased: Erased = field(default_factory=Erased)
    distrusted: Distrusted = field(default_factory=Distrusted)

    @property
    def topics(self) -> tuple[Erased, Distrusted]:
        return self.erased, self.distrusted

    async def read(self, bootstrap: Bootstrap, tenants: Collection[str]) -> None:
        """Read both topics up to their current end. Raises BrokerUnavailable."""
        for each in self.topics:
            await each.read(bootstrap, tenants)
