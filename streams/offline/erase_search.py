"""Find the sessions that an erasure means, and every place that names them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import Any

import msgspec
import orjson
from aiokafka import ConsumerRecord

from fleetlore.config import Settings
from fleetlore.errors import ConfigError
from fleetlore.kafka.read import records_of
from fleetlore.redact.redact import PART_OF_ID, spellings, stored_name
from fleetlore.wire.decode import FEEDBACK, STARTED, Incoming, json_reader
from fleetlore.wire.principals import id_key, principal_of, review_key, session_key
from fleetlore.wire.stats import stable_hash, user_hash
from fleetlore.wire.topics import DAY_SECONDS, TOPICS, topic
from models.judge import SessionState
from streams.stage.base import Effects, Record, Store
from streams.stages.s1_sessions.open_session import PART_EVENTS
from streams.stages.s1_sessions.parse import read_events

__all__ = ["Wanted"]

# Topics whose records name sessions, and the days that each record is kept.
_BY_TIME = {spec.name: spec.retention_days for spec in TOPICS if spec.retention_days is not None}

# Tells by id, agent, user and end whether an erasure means a session.
Means = Callable[[str, str, str, float], bool]
_Session = tuple[str, str]  # principal and id


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The scope of an erasure: one session, agent or user, or everything of the tenant.

    A session with an agent is that principal's; without, those of all under its id. Raises ConfigError: the scope is
    empty, or names two things.
    """

    tenant: str
    session: str = ""
    agent: str = ""
    user: str = ""
    everything: bool = False

    def __post_init__(self) -> None:
        if sum((bool(self.session or self.agent), bool(self.user), self.everything)) != 1:
            raise ConfigError("give --session, --agent or both, or --user, or --tenant alone for all that it has")
        try:
            f"{self.session}{self.agent}{self.user}".encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{self.scope!r} is not valid Unicode, so nothing is stored under that name") from None

    def means(self, session: str, agent: str, user: str, time: float = 0.0) -> bool:
        if self.session:
            if self.agent and principal_of(agent) not in spellings(principal_of(self.agent)):
                return False
            return any(
                session == first or (session.startswith(first) and PART_OF_ID.fullmatch(session, len(first)))
                for first in spellings(self.session)
            )
        if self.user:
            return bool(user) and user == user_hash(self.user)
        return self.everything or agent in spellings(self.agent)

    def means_person(self, name: str) -> bool:
        return self.everything or name in spellings(self.agent)

    @property
    def scope(self) -> str:
        names = {"session": self.session, "agent": self.agent, "user": self.user}
        return " of ".join(f"{kind} {name}" for kind, name in names.items() if name) or f"tenant {self.tenant}"


@dataclass(slots=True)
class OnTopic:
    records: int = 0
    places: set[tuple[int, int]] = field(default_factory=set)
    until: float = 0.0
    sessions: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Found:
    ids: set[str] = field(default_factory=set)
    parts: dict[_Session, int] = field(default_factory=dict)
    ended: dict[_Session, float] = field(default_factory=dict)
    judgments: list[str] = field(default_factory=list)
    reviews: dict[str, str] = field(default_factory=dict)
    topics: dict[str, OnTopic] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    others: frozenset[int] = frozenset()

    def add(self, agent: str, id: str, part: int, ended: float) -> None:
        session = principal_of(agent), id
        self.parts[session] = max(self.parts.get(session, 0), part + 1)
        self.ended[session] = max(self.ended.get(session, 0.0), ended)

    @property
    def rows(self) -> list[str]:
        ids = {id for _, id in self.parts} - self.shared
        return [*self.judgments, *(row for row, id in self.reviews.items() if id in ids)]

    @property
    def by_session(self) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = [(stable_hash(id_key(id)),) for id in sorted(self.ids)]
        for session, parts in sorted(self.parts.items()):
            keys = [session_key(*session, part) for part in range(parts)]
            if session[1] not in self.shared:
                keys.append(review_key(session[1]))
            found.append(tuple(map(stable_hash, keys)))
        return found

    @property
    def hashes(self) -> set[int]:
        return {each for of_session in self.by_session for each in of_session} | self.others


async def find(settings: Settings, store: Store, wanted: Wanted) -> Found:
    found = Found()
    if wanted.session and not wanted.agent:
        found.ids |= spellings(wanted.session)
    await look_at_rows(store, wanted.tenant, wanted.means, found)
    users: dict[_Session, str] = {}
    async for record in records_of(settings.cluster, topic(wanted.tenant, "events")):
        for event in _events(record):
            agent = stored_name(event.agent)
            session = principal_of(agent), stored_name(event.session)
            if event.type == STARTED and event.data.user:
                users[session] = event.data.user
            if session in found.parts or wanted.means(session[1], agent, users.get(session, "")):
                found.add(*session, event.sequence // PART_EVENTS, event.time.timestamp())
    ids = {stable_hash(id_key(id)): id for _, id in found.parts}
    hashes, names = found.hashes, [orjson.dumps(id) for _, id in list(found.parts)[:1_000]]
    for name, days in _BY_TIME.items():
        async for record in records_of(settings.cluster, topic(wanted.tenant, name)):
            if name == "dead-letters":  # their bytes may be anything
                value = record.value or b""
                named = {0} if any(each in value or each.strip(b'"') == record.key for each in names) else set()
            elif name == "adapters.acks":  # names an agent and no session
                named = {0} if not wanted.session and _names_person(wanted, record.value or b"") else set()
            else:
                pairs = list(_sessions_of(name, record))
                named = hashes.intersection(chain.from_iterable(pairs))
                found.shared |= {ids[id] for id, key in pairs if id in ids and key not in hashes}
            if named:
                on = found.topics.setdefault(name, OnTopic())
                on.records += 1
                on.until = max(on.until, record.timestamp / 1000 + (days or 0) * DAY_SECONDS)
                on.places.add((record.partition, record.offset))
                on.sessions |= named
    return found


async def look_at_rows(store: Store, tenant: str, means: Means, found: Found) -> None:
    found.judgments, found.reviews = [], {}
    async for row in store.rows("judgments", tenant, "session", "state"):
        state = SessionState.from_json(row["state"])
        known, feedback = state.trajectory, state.feedback
        if known is not None:
            session = known.session, known.agent, known.user, known.ended
        elif feedback is not None and feedback.claimed:
            session = feedback.session, feedback.by, "", feedback.time
        elif means(row["session"], "", "", 0.0):
            found.judgments.append(row["id"])
            continue
        else:
            found.reviews[row["id"]] = row["session"]
            continue
        if means(*session):
            found.add(session[1], session[0], known.part if known else 0, session[3])
            found.judgments.append(row["id"])
    ids = {id for _, id in found.parts}
    async for row in store.rows("judgments", tenant, "session", "agent"):
        if row["agent"] and row["session"] in ids and (principal_of(row["agent"]), row["session"]) not in found.parts:
            found.shared.add(row["session"])


def _sessions_of(name: str, record: ConsumerRecord) -> Iterator[tuple[int, int]]:
    if name in ("events", "feedback"):
        for event in _events(record):
            yield _hashes_of(event.session, "" if event.type == FEEDBACK else event.agent)
        return
    try:
        values = orjson.loads(record.value or b"")
    except orjson.JSONDecodeError:
        return
    for value in values if isinstance(values, list) else [values]:
        if isinstance(value, list) and len(value) > 1 and isinstance(value[1], int):  # an observation
            yield value[1], value[1]
        elif isinstance(value, dict):
            inner = value.get("trajectory", value)
            session, agent = (inner.get(each) if isinstance(inner, dict) else None for each in ("session", "agent"))
            if isinstance(session, str):
                yield _hashes_of(session, agent if isinstance(agent, str) else "")


_read_ack = json_reader(dict[str, Any])


def _names_person(wanted: Wanted, ack: bytes) -> bool:
    try:
        agent = _read_ack(ack).get("agent")
    except msgspec.DecodeError:
        return False
    return isinstance(agent, str) and not wanted.user and wanted.means_person(agent)


def _hashes_of(session: str, agent: str) -> tuple[int, int]:
    return stable_hash(id_key(session)), stable_hash(session_key(agent, session) if agent else review_key(session))


def _events(record: ConsumerRecord) -> list[Incoming]:
    # Workers refuse future events, which lie on the log all the same.
    return read_events(Record.of(record)._replace(time=inf), Effects())
