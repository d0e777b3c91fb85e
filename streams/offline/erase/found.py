"""Find the sessions to erase, and until when records of the log name them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiokafka import ConsumerRecord

from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.kafka.read import records_of
from fleetlore.stats.hashing import stable_hash, user_hash
from fleetlore.wire.incoming import STARTED, Incoming
from fleetlore.wire.topics import DAY_SECONDS, TOPICS, topic
from models.judge.session_state import SessionState
from streams.stage.base import Effects, Record, Store
from streams.stages.s1_sessions.open_session import PART_EVENTS
from streams.stages.s1_sessions.parse import read_events

__all__ = ["Wanted"]

# Whose records name sessions; each is kept for so many days.
_BY_TIME = {
    spec.name: spec.retention_days
    for spec in TOPICS
    if spec.retention_days is not None and not spec.name.startswith("adapters.")
}

# What a further part of a session adds to its id (`fleetlore.agent.session`).
_PART = re.compile(r"\.[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to erase: one of a session, an agent and a user, or all that the tenant has.

    Raises:
        ConfigError: not exactly one of them is given.
    """

    tenant: str
    session: str = ""
    agent: str = ""
    user: str = ""
    everything: bool = False

    def __post_init__(self) -> None:
        if sum((bool(self.session), bool(self.agent), bool(self.user), self.everything)) != 1:
            raise ConfigError("give one of --session, --agent and --user, or --tenant alone for all that it has")

    def means(self, session: str, agent: str, user: str) -> bool:
        """Whether a session is meant, or goes on with one that is (`resume=True`)."""
        if self.session:
            return session == self.session or _goes_on(session, self.session)
        if self.user:
            return bool(user) and user == user_hash(self.user)
        return self.everything or agent == self.agent

    @property
    def scope(self) -> str:
        """What it is, for people."""
        names = {"session": self.session, "agent": self.agent, "user": self.user}
        return next((f"{kind} {name}" for kind, name in names.items() if name), f"tenant {self.tenant}")


@dataclass(slots=True)
class Found:
    """Sessions that are meant, and where they are named.

    Attributes:
        parts: of each session, the number of its parts that are known.
        ended: event time of the newest of their events that is known, in seconds since the Unix epoch.
        rows: ids of judgments in Milvus.
        records: by topic, how many records name one of them.
        until: by topic, when the last of these records has left it, in seconds since the Unix epoch.
        placed: by topic, hashes of the sessions that its records name.
        definitions: hashes of what their models were given besides.
        positions: on `trajectories` and `judgments`: (partition, offset, number in the record).
    """

    parts: dict[str, int] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    rows: list[str] = field(default_factory=list)
    records: dict[str, int] = field(default_factory=dict)
    until: dict[str, float] = field(default_factory=dict)
    definitions: set[bytes] = field(default_factory=set)
    placed: dict[str, set[int]] = field(default_factory=dict)
    positions: dict[str, set[tuple[int, int, int]]] = field(default_factory=dict)

    def add(self, session: str, part: int, ended: float) -> None:
        """A session, or one of its parts, is meant."""
        self.parts[session] = max(self.parts.get(session, 0), part + 1)
        self.ended[session] = max(self.ended.get(session, 0.0), ended)

    def ended_unplaced(self, name: str) -> list[float]:
        """When those sessions ended that no record of a topic names any more."""
        placed = self.placed.get(name, set())
        # Of a session that nobody knows there is no time.
        return [ended for session, ended in self.ended.items() if ended > 0.0 and stable_hash(session) not in placed]

    @property
    def hashes(self) -> dict[str, tuple[int, ...]]:
        """Of each session, the hashes of its id and of those of its parts."""
        return {
            session: (stable_hash(session), *(stable_hash(f"{session}#{part}") for part in range(1, parts)))
            for session, parts in sorted(self.parts.items())
        }


def _goes_on(session: str, first: str) -> bool:
    return session.startswith(f"{first}.") and _PART.fullmatch(session, len(first)) is not None


async def find(settings: Settings, store: Store, wanted: Wanted) -> Found:
    """Look through the judgments and the log.

    Raises:
        StoreUnavailable, BrokerUnavailable: one of the two does not answer.
    """
    found = Found()
    if wanted.session:
        found.add(wanted.session, 0, 0.0)
    await look_at_rows(store, wanted, found)
    users: dict[str, str] = {}
    async for record in records_of(settings.cluster, topic(wanted.tenant, "events")):
        for event in _events(record):
            if event.type == STARTED and event.data.user:
                users[event.session] = event.data.user
            if event.session in found.parts or wanted.means(event.session, event.agent, users.get(event.session, "")):
                found.add(event.session, event.sequence // PART_EVENTS, event.time.timestamp())
                found.definitions.add((event.data.definitions or "").encode())
    await _look_through(settings, wanted.tenant, found)
    return found


async def look_at_rows(store: Store, wanted: Wanted, found: Found) -> None:
    """Add the sessions that have been judged.

    Raises:
        StoreUnavailable: Milvus does not answer.
    """
    found.rows = []
    async for row in store.rows("judgments", wanted.tenant, "state"):
        _take_row(row, wanted, found)


def _take_row(row: dict[str, Any], wanted: Wanted, found: Found) -> None:
    id = row["id"].partition("/")[2]
    if not id:
        return  # a record of a judge
    trajectory = SessionState.from_json(row["state"]).trajectory
    if trajectory is None:
        session, part, ended, agent, user = id, 0, 0.0, "", ""  # a correction whose session has not come
    else:
        session, part, ended = trajectory.session, trajectory.part, trajectory.ended
        agent, user = trajectory.agent, trajectory.user
    if wanted.means(session, agent, user):
        found.add(session, part, ended)
        found.rows.append(row["id"])


async def _look_through(settings: Settings, tenant: str, found: Found) -> None:
    hashes = {each for of_session in found.hashes.values() for each in of_session}
    names = [orjson.dumps(session) for session in found.parts]
    for name, days in _BY_TIME.items():
        async for record in records_of(settings.cluster, topic(tenant, name)):
            if name == "definitions":
                named = [(0, 0)] * (record.key in found.definitions)
            else:
                named = list(_naming(name, record, hashes, names))
            if not named:
                continue
            found.records[name] = found.records.get(name, 0) + 1
            until = record.timestamp / 1000 + (days or 0) * DAY_SECONDS
            found.until[name] = max(found.until.get(name, 0.0), until)
            places = found.positions.setdefault(name, set())
            places.update((record.partition, record.offset, number) for number, _ in named)
            found.placed.setdefault(name, set()).update(session for _, session in named)


def _naming(name: str, record: ConsumerRecord, hashes: set[int], names: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    """Numbers of the values of a record that are of erased sessions, each with the hash of its session."""
    value = record.value or b""
    if name == "dead-letters":  # of any bytes
        yield from ((0, 0) for session in list(names)[:1_000] if session in value or session.strip(b'"') == record.key)
        return
    if name in ("events", "feedback"):
        found = ((number, stable_hash(event.session)) for number, event in enumerate(_events(record)))
        yield from ((number, session) for number, session in found if session in hashes)
        return
    try:
        values = orjson.loads(value)
    except orjson.JSONDecodeError:
        return
    for number, each in enumerate(values if isinstance(values, list) else [values]):
        session = _session_of(each)
        if session is not None and session in hashes:
            yield number, session


def _session_of(value: Any) -> int | None:
    """Hash of the session that a value of the pipeline's own topics is of."""
    if isinstance(value, list):  # an observation
        return value[1] if len(value) > 1 and isinstance(value[1], int) else None
    if not isinstance(value, dict):
        return None
    inner = value.get("trajectory")
    session = (inner if isinstance(inner, dict) else value).get("session")
    return stable_hash(session) if isinstance(session, str) else None


def _events(record: ConsumerRecord) -> list[Incoming]:
    plain = Record(record.topic, record.partition, record.offset, record.key, record.value, dict(record.headers))
    return read_events(plain, Effects())
