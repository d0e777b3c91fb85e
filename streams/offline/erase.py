"""Erase what a session, an agent, a user or a tenant has left, step by step, while the fleet goes on.

1. What is erased is written to the topic `erasures`: every stage drops it from then on, a backfill too.
2. The owner of each state that knows an erased session is asked to forget it (`streams.offline.operator_word`), until
   no state knows one. Agents hear of it as of any change of lore.
3. The rows of judgments are deleted, and those of states in which nothing is left; Milvus is asked to compact.
4. Adapter versions that have learned of it are revoked and deleted; the trainer learns new ones without it.

What the log itself holds ages out: the report says when. A run that was stopped is begun again by the same command.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import orjson
from aiokafka import ConsumerRecord

from fleetlore.clock import SystemClock
from fleetlore.config import Settings
from fleetlore.errors import ConfigError, StackError
from fleetlore.kafka.read import records_of
from fleetlore.lora.adapter import unpack
from fleetlore.stats.hashing import stable_hash, user_hash
from fleetlore.wire.adapter_manifest import ADAPTERS, SCHEMA, AdapterManifest, LanguageModelManifest
from fleetlore.wire.incoming import STARTED, Incoming
from fleetlore.wire.topics import DAY_SECONDS, TOPICS, topic
from models.judge.session_state import SessionState
from sinks.adapter_publisher import AdapterPublisher
from sinks.milvus import MilvusStore
from streams.offline.drain import BEHIND, wait_drained
from streams.offline.operator_word import Deliver, States, ask_owners, beside_workers, states_that
from streams.stage.base import Effects, ListedStore, Outgoing, Record
from streams.stage.operators import ERASURES, Erased, Erasure, Forget
from streams.stages.s1_sessions.open_session import PART_EVENTS
from streams.stages.s1_sessions.parse import read_events

__all__ = ["Wanted", "erase", "forget_erased"]

# Whose records name sessions; each is kept for so many days.
_BY_TIME = {
    spec.name: spec.retention_days
    for spec in TOPICS
    if spec.retention_days is not None and not spec.name.startswith("adapters.")
}
# What a further part of a session adds to its id (`fleetlore.agent.session`).
_PART = re.compile(r"\.[0-9a-f]{12}")
_HEARD_SECONDS = 2.0  # a worker reads an erasure within a fetch
_ROUNDS = 5  # later rounds find what was under way at the first
# The label of rows that earlier releases kept beside the judgments. They hold hashes of sessions, so they are deleted.
_OF_JUDGES = "judge"

# Whether a session is meant, by its id, its agent, its user and the time of its end.
_Means = Callable[[str, str, str, float], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The scope of an erasure: one session, agent or user, or everything of the tenant.

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
        try:
            f"{self.session}{self.agent}{self.user}".encode()
        except UnicodeEncodeError:  # bytes of a terminal that are no UTF-8
            raise ConfigError(f"{self.scope!r} is not valid Unicode, so nothing is stored under that name") from None

    def means(self, session: str, agent: str, user: str, time: float = 0.0) -> bool:
        """Return whether a session is meant, or continues one that is (`resume=True`), at whatever time it ended."""
        if self.session:
            first = self.session
            return session == first or (session.startswith(first) and bool(_PART.fullmatch(session, len(first))))
        if self.user:
            return bool(user) and user == user_hash(self.user)
        return self.everything or agent == self.agent

    @property
    def scope(self) -> str:
        names = {"session": self.session, "agent": self.agent, "user": self.user}
        return next((f"{kind} {name}" for kind, name in names.items() if name), f"tenant {self.tenant}")


@dataclass(slots=True)
class OnTopic:
    """Records of a topic that name erased sessions (hashes): where they are, and the Unix time when all are gone."""

    records: int = 0
    places: set[tuple[int, int]] = field(default_factory=set)
    until: float = 0.0
    sessions: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Found:
    """Sessions that are meant, and where they are named.

    Attributes:
        parts: of each session, the number of its parts that are known.
        ended: event time of the newest of their events that is known, in seconds since the Unix epoch.
        rows: ids of judgments in Milvus.
        topics: by name, of those that name one.
        others: hashes of further sessions, whose names are not known.
    """

    parts: dict[str, int] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    rows: list[str] = field(default_factory=list)
    topics: dict[str, OnTopic] = field(default_factory=dict)
    others: frozenset[int] = frozenset()

    def add(self, session: str, part: int, ended: float) -> None:
        self.parts[session] = max(self.parts.get(session, 0), part + 1)
        self.ended[session] = max(self.ended.get(session, 0.0), ended)

    @property
    def by_session(self) -> dict[str, tuple[int, ...]]:
        """Of each session, the hashes of its id and of those of its parts."""
        return {
            session: (stable_hash(session), *(stable_hash(f"{session}#{part}") for part in range(1, parts)))
            for session, parts in sorted(self.parts.items())
        }

    @property
    def hashes(self) -> set[int]:
        return {each for of_session in self.by_session.values() for each in of_session} | self.others


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasing:
    """The result of an erasure, or the forecast of a dry run.

    Attributes:
        sessions: how many.
        records: on the log, by topic, how many records name one of them; none of them is taken up again.
        until: by topic, when the last of these has left the log, in seconds since the Unix epoch.
        rows: of Milvus, by collection: judgments deleted, patterns and items changed or deleted.
        versions: of adapters that have learned of it: revoked and deleted.
        remains: what no date is known of: where bytes lie on, and how long.
    """

    scope: str
    tenant: str
    done: bool
    time: float
    sessions: int
    records: Mapping[str, int]
    until: Mapping[str, float]
    rows: Mapping[str, int]
    versions: Sequence[str]
    remains: Mapping[str, str]
    schema: int = SCHEMA


async def erase(settings: Settings, wanted: Wanted, *, dry_run: bool, timeout_seconds: float) -> Erasing:
    """Erase what is wanted, with the workers running; of a dry run only look.

    Raises:
        StoreUnavailable, BrokerUnavailable: one of the two does not answer; run it again.
        StackError: the workers did not do their part in time; run it again.
    """
    tenant, now, compacting, versions = wanted.tenant, SystemClock().now(), False, list[str]()
    async with beside_workers(settings, tenant, timeout_seconds) as (store, producer):
        found = await _find(settings, store, wanted)
        first = await _knowing(store, tenant, found)
        if dry_run:
            versions = await learned_versions(settings, tenant, found, erase=False)
        elif found.parts or wanted.agent:
            erasures = [Erasure(time=now, sessions=hashes) for hashes in found.by_session.values()]
            if wanted.agent:
                # What it has sent and nobody has read yet is dropped, too.
                erasures.append(Erasure(time=now, agent=stable_hash(wanted.agent), before=now))
            await producer.deliver([Outgoing(tenant, ERASURES, each.key, each.to_json()) for each in erasures])
            await asyncio.sleep(_HEARD_SECONDS)
            # Now: what is published from here on has not learned of it.
            versions = await learned_versions(settings, tenant, found, erase=True)

            async def settle() -> None:
                await wait_drained(settings, tenant, timeout_seconds, BEHIND)

            compacting = await _forget(settings, store, tenant, wanted.means, found, producer.deliver, settle)
    rows = {"judgments": len(found.rows), "patterns": len(first.patterns), "items": len(first.items)}
    return Erasing(
        scope=wanted.scope,
        tenant=tenant,
        done=not dry_run,
        time=now,
        sessions=len(found.parts),
        records={name: on.records for name, on in found.topics.items()},
        until={name: on.until for name, on in found.topics.items()},
        rows=rows,
        versions=versions,
        remains=remaining(settings, compacting=compacting and any(rows.values())),
    )


async def forget_erased(
    settings: Settings,
    store: MilvusStore,
    tenant: str,
    erased: Erased,
    deliver: Deliver,
    settle: Callable[[], Awaitable[object]],
) -> None:
    """Take out of a store what was erased after it was filled.

    Args:
        deliver, settle: bring requests to the owners of the states, and wait until they are done.

    Raises:
        StoreUnavailable, BrokerUnavailable: one of the two does not answer; run it again.
        StackError: the owners did not do their part; run it again.
    """
    if erased.has_any(tenant):
        found = Found(others=erased.sessions(tenant))

        def means(session: str, agent: str, _: str, ended: float) -> bool:
            return erased.drops(tenant, session, agent, ended)

        await _forget(settings, store, tenant, means, found, deliver, settle)


async def _forget(
    settings: Settings,
    store: MilvusStore,
    tenant: str,
    means: _Means,
    found: Found,
    deliver: Deliver,
    settle: Callable[[], Awaitable[object]],
) -> bool:
    """Ask the owners until no state knows what is meant, and delete its rows; return what `MilvusStore.purge` does."""
    for _ in range(_ROUNDS):
        await settle()
        # These were judged before their worker knew of the erasure.
        await _look_at_rows(store, tenant, means, found)
        if not (left := await _knowing(store, tenant, found)):
            break
        await ask_owners(settings, deliver, tenant, left, Forget, found.hashes)
    else:
        raise StackError(f"states of tenant {tenant} still know what was erased after {_ROUNDS} rounds: run it again")
    await store.delete("judgments", found.rows)
    for collection, ids in left.empty.items():
        await store.delete(collection, ids)
    return await store.purge()


async def _knowing(store: ListedStore, tenant: str, found: Found) -> States:
    hashes = found.hashes
    return await states_that(lambda state: hashes & state.sessions, store, tenant)


def remaining(settings: Settings, *, compacting: bool) -> dict[str, str]:
    """Return where bytes remain and until when. `compacting`: a cluster still holds deleted rows."""
    left = {
        "topics patterns, items": "a value before: within a day (max.compaction.lag.ms) of the next write to its "
        "partition"
    }
    if compacting:
        left["files of the Milvus cluster"] = (
            "until it has compacted, and then its settings common.retentionDuration and dataCoord.gc.dropTolerance"
        )
    if settings.llm_answers:
        left[f"answers of a language model, in {settings.llm_answers} of each worker that asked one"] = (
            "until the file is deleted"
        )
    if not settings.signing_key:
        left["adapter versions"] = "not looked at, no signing key"
    return left


async def learned_versions(settings: Settings, tenant: str, found: Found, *, erase: bool) -> list[str]:
    """Return the versions that have learned of it, the newest first, revoked and deleted where that is asked for.

    None where no key is set to sign with: revocations come from where the key is. The trainer, which hears of the
    erasure too, learns new versions without.

    Raises:
        BrokerUnavailable: the broker does not answer; run it again.
    """
    if not settings.signing_key or not found.parts:
        return []
    learned: list[str] = []
    for kind in ADAPTERS:
        async with AdapterPublisher.from_settings(kind, settings) as publisher:
            registry = await publisher.published(tenant)
            # Those that were revoked before are still there too: the topics keep the newest record of a key for ever.
            mine = [each for each in registry.kept.values() if has_learned(each, found)]
            mine.sort(key=lambda each: -each.ordinal)
            learned += [f"{kind.name}/{each.version}" for each in mine]
            # The newest last: until then its place is not taken by another one that has learned of it.
            for each in reversed(mine) if erase else ():
                if not registry.revoked(each.version):
                    await publisher.revoke(tenant, each.version, "it learned from what was erased")
                await publisher.delete(registry, each)
    return learned


def has_learned(version: AdapterManifest, found: Found) -> bool:
    """Return whether a version has learned from an erased session, as far as is known.

    A version of the call model or of the retrieval adapter says which records it learned from, a LoRA of a language
    model which sessions. Where that is not known of a session, because its records have left the log, a version that
    was made after it is taken for one that learned from it.
    """
    placed: set[int] = set()
    if isinstance(version, LanguageModelManifest):
        if version.learned_from:
            return not found.hashes.isdisjoint(unpack(version.learned_from))
    else:
        on = found.topics.get("trajectories", OnTopic())
        ranges = {each.partition: each for each in version.data}
        if any(p in ranges and ranges[p].start <= offset < ranges[p].stop for p, offset in on.places):
            return True
        placed = on.sessions
    # Of a session that nobody knows there is no time.
    unplaced = [at for session, at in found.ended.items() if at > 0.0 and stable_hash(session) not in placed]
    return any(version.created >= each for each in unplaced)


async def _find(settings: Settings, store: ListedStore, wanted: Wanted) -> Found:
    found = Found()
    if wanted.session:
        found.add(wanted.session, 0, 0.0)
    await _look_at_rows(store, wanted.tenant, wanted.means, found)
    users: dict[str, str] = {}
    async for record in records_of(settings.cluster, topic(wanted.tenant, "events")):
        for event in _events(record):
            if event.type == STARTED and event.data.user:
                users[event.session] = event.data.user
            if event.session in found.parts or wanted.means(event.session, event.agent, users.get(event.session, "")):
                found.add(event.session, event.sequence // PART_EVENTS, event.time.timestamp())
    hashes, names = found.hashes, [orjson.dumps(session) for session in list(found.parts)[:1_000]]
    for name, days in _BY_TIME.items():
        async for record in records_of(settings.cluster, topic(wanted.tenant, name)):
            if name == "dead-letters":  # of any bytes
                value = record.value or b""
                named = {0} if any(each in value or each.strip(b'"') == record.key for each in names) else set()
            else:
                named = hashes.intersection(_sessions_of(name, record))
            if named:
                on = found.topics.setdefault(name, OnTopic())
                on.records += 1
                on.until = max(on.until, record.timestamp / 1000 + (days or 0) * DAY_SECONDS)
                on.places.add((record.partition, record.offset))
                on.sessions |= named
    return found


async def _look_at_rows(store: ListedStore, tenant: str, means: _Means, found: Found) -> None:
    found.rows = []
    async for row in store.rows("judgments", tenant, "label", "state"):
        if row["label"] == _OF_JUDGES:
            found.rows.append(row["id"])
            continue
        id = row["id"].partition("/")[2]
        known = SessionState.from_json(row["state"]).trajectory
        # Without a trajectory it is a correction whose session has not come.
        session, agent, user = (id, "", "") if known is None else (known.session, known.agent, known.user)
        part, ended = (0, 0.0) if known is None else (known.part, known.ended)
        if means(session, agent, user, ended):
            found.add(session, part, ended)
            found.rows.append(row["id"])


def _sessions_of(name: str, record: ConsumerRecord) -> Iterator[int]:
    if name in ("events", "feedback"):
        yield from (stable_hash(event.session) for event in _events(record))
        return
    try:
        values = orjson.loads(record.value or b"")
    except orjson.JSONDecodeError:
        return
    for value in values if isinstance(values, list) else [values]:
        if isinstance(value, list) and len(value) > 1 and isinstance(value[1], int):  # an observation
            yield value[1]
        elif isinstance(value, dict):
            inner = value.get("trajectory")
            session = (inner if isinstance(inner, dict) else value).get("session")
            if isinstance(session, str):
                yield stable_hash(session)


def _events(record: ConsumerRecord) -> list[Incoming]:
    # Whatever their time: what workers refuse as of the future lies on the log all the same.
    return read_events(Record.of(record)._replace(time=inf), Effects())
