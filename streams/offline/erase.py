"""Erase what a session, agent, user or tenant has left, step by step, while the fleet goes on.

(1) The topic `erasures` makes every stage drop the erased events. (2) The owners of states forget the sessions. (3)
Rows are deleted, and Milvus compacts. (4) The same is done in other collection versions. (5) Adapter versions that have
learned of it are revoked and deleted. To continue a stopped run, repeat the command.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from fleetlore.clock import SystemClock
from fleetlore.config import Settings
from fleetlore.errors import ConfigError, InvalidEvent, StackError
from fleetlore.kafka.client import connected, make_admin
from fleetlore.kafka.read import read_to_end, records_of
from fleetlore.lora.adapter import unpack
from fleetlore.redact.redact import spellings
from fleetlore.wire.adapter_manifest import ADAPTERS, SCHEMA, AdapterManifest, LanguageModelManifest
from fleetlore.wire.decode import array_parts
from fleetlore.wire.lore import DECISIONS, HISTORY, Decision
from fleetlore.wire.principals import session_key
from fleetlore.wire.stats import stable_hash
from fleetlore.wire.topics import topic
from sinks.adapter_publisher import AdapterPublisher
from sinks.collections import list_versions
from sinks.metrics import Metrics
from sinks.milvus import MilvusStore
from streams.offline.erase_search import Found, Means, OnTopic, Wanted, find, look_at_rows
from streams.offline.operator_word import Deliver, Owners, States, beside_workers, states_that
from streams.stage.base import Outgoing, Store
from streams.stage.operators import ERASURES, Erased, Erasure, Forget, Operators, put_in_history, without
from streams.stages.pipeline import Chain, pipeline

__all__ = ["erase"]

_READ_SECONDS = 30.0
_HEARD_SECONDS = 2.0  # a worker reads an erasure within a fetch
_ROUNDS = 5  # later rounds find what was in flight at the first


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasing:
    """The result of an erasure, or the forecast of a dry run.

    `records`: those in the log that name an erased session, by topic; stages ignore them. `until`: Unix time when the
    last of these has left the log. `rows`: of Milvus by collection. `decisions`: those that held a person's name or
    words, by topic. `remains`: bytes without a known date of deletion: where they are, and for how long.
    """

    scope: str
    tenant: str
    done: bool
    time: float
    sessions: int
    records: Mapping[str, int]
    until: Mapping[str, float]
    rows: Mapping[str, int]
    decisions: Mapping[str, int]
    versions: Sequence[str]
    remains: Mapping[str, str]
    schema: int = SCHEMA


async def erase(settings: Settings, wanted: Wanted, *, dry_run: bool, timeout_seconds: float) -> Erasing:
    """The workers must be running."""
    tenant, now, compacting, versions, other = wanted.tenant, SystemClock().now(), False, list[str](), list[str]()
    async with beside_workers(settings, tenant, timeout_seconds) as owners:
        deliver, store = owners.deliver, owners.store
        persons: _Persons | None = None
        if not (wanted.session or wanted.user):
            persons = await erase_persons(settings, tenant, wanted.means_person, deliver, now=now, dry_run=dry_run)
        found = await find(settings, store, wanted)
        first = await _knowing(store, tenant, found)
        if dry_run:
            versions = await learned_versions(settings, tenant, found, erase=False)
        elif found.by_session or wanted.agent:
            erasures = [Erasure(time=now, sessions=hashes) for hashes in found.by_session]
            if wanted.agent and not wanted.session:
                # Also drop events not read yet.
                names = sorted(spellings(wanted.agent))
                erasures += [Erasure(time=now, agent=stable_hash(name), before=now) for name in names]
            await deliver([Outgoing(tenant, ERASURES, each.key, each.to_json()) for each in erasures])
            await asyncio.sleep(_HEARD_SECONDS)
            # Later versions have not learned of it.
            versions = await learned_versions(settings, tenant, found, erase=True)
            compacting = await _forget(owners, wanted.means, found)
        if not dry_run:
            other = await _forget_in_other_versions(settings, store, wanted, found)
    rows = {"judgments": len(found.rows), "patterns": len(first.patterns), "items": len(first.items)}
    return Erasing(
        scope=wanted.scope,
        tenant=tenant,
        done=not dry_run,
        time=now,
        sessions=len(found.parts) or int(bool(found.ids)),
        records={name: on.records for name, on in found.topics.items()},
        until={name: on.until for name, on in found.topics.items()},
        rows=rows,
        decisions=persons.decisions if persons else {},
        versions=versions,
        remains=remaining(settings, compacting=compacting and any(rows.values()), other=other, persons=persons),
    )


# By key, the last offset that was read, and the value that is sent after it.
_Sent = dict[bytes, tuple[int, bytes | None]]


class _Persons(NamedTuple):
    """`decisions`: number by topic that held a name or words. `refused`: why the broker still has these records."""

    decisions: dict[str, int]
    refused: KafkaError | None = None


def rewritten(records: Iterable[bytes], means: Callable[[str], bool]) -> tuple[list[bytes], int]:
    """Return the values of all records of the history, and how many of them held the person's name or words."""
    known, foreign, held = dict[str, Decision](), dict[bytes, None](), 0
    for record in records:
        with suppress(InvalidEvent):  # a value that is no JSON would spoil the array that it is sent in, so it goes
            for value in array_parts(record if record.startswith(b"[") else b"[%b]" % record):
                try:
                    decided = Decision.from_json(value)
                except ValueError:  # keep a value that this release cannot read
                    foreign[value] = None
                    continue
                held += without(decided, means) != decided
                put_in_history(known, value)
    return [*foreign, *(without(each, means).to_json() for each in known.values())], held


async def erase_persons(
    settings: Settings, tenant: str, means: Callable[[str], bool], deliver: Deliver, *, now: float, dry_run: bool
) -> _Persons:
    """Erase the persons that `means` names.

    A record of the history cannot be replaced. The command writes the whole history again without the persons, and asks
    the broker to delete the records before. Readers prefer the copies. Raises BrokerUnavailable.
    """
    names: set[str] = set()

    def is_meant(name: str) -> bool:
        if found := means(name):
            names.add(name)
        return found

    async def send(values: Sequence[Outgoing]) -> None:
        # The erasures keep older exports out. They come first, because a second run no longer finds the names.
        erasures = [Erasure(time=now, agent=stable_hash(each), before=now) for each in sorted(names)]
        await deliver([Outgoing(tenant, ERASURES, each.key, each.to_json()) for each in erasures])
        await deliver(values)

    name, refused = topic(tenant, HISTORY), None
    records = [each async for each in records_of(settings.cluster, name)]
    values, held = rewritten([each.value or b"" for each in records], is_meant)
    if held and not dry_run:
        await send([Outgoing(tenant, HISTORY, "", each) for each in values])
        old = {TopicPartition(name, each.partition): RecordsToDelete(each.offset + 1) for each in records}
        try:
            async with connected(make_admin(settings.cluster)) as admin:
                await admin.delete_records(old)
        except KafkaError as error:  # the right is missing, or the embedded broker cannot
            refused = error
    sent, erased, newest = _Sent(), set[bytes](), [topic(tenant, DECISIONS)]
    while sent := _to_send(await read_to_end(settings.cluster, newest, _READ_SECONDS), is_meant, sent):
        erased |= sent.keys()
        if dry_run:
            break
        await send([Outgoing(tenant, DECISIONS, key.decode(), value) for key, (_, value) in sent.items()])
    found = {DECISIONS: len(erased), HISTORY: held}
    return _Persons({name: count for name, count in found.items() if count}, refused)


def _to_send(records: Iterable[ConsumerRecord], means: Callable[[str], bool], sent: _Sent) -> _Sent:
    """Return the values to send to the topic `decisions`, after `sent` was sent.

    A copy in `sent` may have replaced a newer value of another writer. Such a value is sent again.
    """
    last, newest = dict[bytes, ConsumerRecord](), dict[bytes, ConsumerRecord]()
    for record in records:
        key = record.key or b""
        last[key] = record
        end, copy = sent.get(key, (record.offset, None))
        if key not in newest or newest[key].offset <= end or record.value != copy:
            newest[key] = record
    found = _Sent()
    for key, record in newest.items():
        value = record.value
        with suppress(ValueError):  # a deletion, or another release's format
            decided = Decision.from_json(value or b"")
            if (kept := without(decided, means)) != decided:
                value = None if decided.hint is not None and kept.hint is None else kept.to_json()
        if value != last[key].value:
            found[key] = last[key].offset, value
    return found


async def _forget_in_other_versions(settings: Settings, live: MilvusStore, wanted: Wanted, found: Found) -> list[str]:
    known = await live.on_client(list_versions)
    if sum(known.values()) > 1:
        raise StackError(
            "a switch of collections was interrupted: run `fleetlore backfill switch NAME` again, then erase again"
        )
    metrics, operators, unread = Metrics("erase"), Operators(), list[str]()
    await operators.read(settings.cluster, [wanted.tenant])
    for version in (name for name, is_live in known.items() if not is_live):
        async with MilvusStore.from_settings(settings, metrics=metrics, version=version) as store:
            try:
                await store.open()
            except ConfigError:
                unread.append(version)
                continue
            chain = Chain(pipeline(store, metrics, SystemClock(), settings, None, operators), store)
            there = replace(found, parts=dict(found.parts), ended=dict(found.ended), shared=set(found.shared))
            owners = Owners(settings, wanted.tenant, store, chain.deliver, chain.settle)
            await _forget(owners, wanted.means, there)
    return unread


async def forget_erased(owners: Owners, erased: Erased) -> None:
    tenant = owners.tenant
    if erased.has_any(tenant):

        def means(session: str, agent: str, _: str, ended: float) -> bool:
            return erased.drops(tenant, session, agent, ended)

        await _forget(owners, means, Found(others=erased.sessions(tenant)))


async def _forget(owners: Owners, means: Means, found: Found) -> bool:
    store, tenant = owners.store, owners.tenant
    for _ in range(_ROUNDS):
        await owners.drained()
        # Their worker judged these before it knew of the erasure.
        await look_at_rows(store, tenant, means, found)
        if not (left := await _knowing(store, tenant, found)):
            break
        await owners.ask(left, Forget, found.hashes)
    else:
        raise StackError(f"states of tenant {tenant} still know what was erased after {_ROUNDS} rounds: run it again")
    await store.delete("judgments", found.rows)
    for collection, ids in left.empty.items():
        await store.delete(collection, ids)
    return await store.purge()


async def _knowing(store: Store, tenant: str, found: Found) -> States:
    hashes = found.hashes
    return await states_that(lambda state: hashes & state.sessions, store, tenant)


def remaining(
    settings: Settings, *, compacting: bool, other: Sequence[str] = (), persons: _Persons | None = None
) -> dict[str, str]:
    """Return where bytes remain and until when.

    `compacting`: a cluster holds deleted rows. `other`: versions of another release. `persons`: their words.
    """
    left = {
        "topics patterns, items": "a value before: within a day (max.compaction.lag.ms) of the next write to its "
        "partition"
    }
    if compacting:
        left["files of the Milvus cluster"] = (
            "until it has compacted, and then its settings common.retentionDuration and dataCoord.gc.dropTolerance"
        )
    decisions, refused = persons or _Persons({})
    if persons is not None:
        left["topic adapters"] = (
            "reasons that persons gave for a version: until it is moved again or deleted; for ever if it was revoked"
        )
    if DECISIONS in decisions:
        left[f"topic {DECISIONS}"] = (
            "the older form of a decision: within a day (max.compaction.lag.ms) of the next one"
        )
    if HISTORY in decisions:
        left[f"topic {HISTORY}"] = (
            "deleted records, which no reader gets: until the first decision after segment.ms, by default a week"
            if refused is None
            else f"older records, which readers skip and the broker did not delete ({refused!r}): until the topic's "
            "retention ends"
        )
        if isinstance(refused, TopicAuthorizationFailedError):
            left[f"topic {HISTORY}"] += "; give the operator the right Delete (`fleetlore topics acls`) and erase again"
    for version in other:
        left[f"collection version {version}, which another release made"] = f"until `fleetlore backfill drop {version}`"
    if settings.llm_answers:
        left[f"answers of a language model, in {settings.llm_answers} of each worker that asked one"] = (
            "until the file is deleted"
        )
    if not settings.signing_key:
        left["adapter versions"] = "not looked at, no signing key"
    return left


async def learned_versions(settings: Settings, tenant: str, found: Found, *, erase: bool) -> list[str]:
    """Return the versions that have learned of it, newest first. With `erase`, revoke and delete them.

    Only the holder of the signing key can revoke.
    """
    if not settings.signing_key or not found.by_session:
        return []
    learned: list[str] = []
    for kind in ADAPTERS:
        async with AdapterPublisher.from_settings(kind, settings) as publisher:
            known = await publisher.published(tenant)
            # The topic keeps revoked versions too.
            mine = [each.manifest for each in known.releases.values() if has_learned(each.manifest, found)]
            mine.sort(key=lambda each: -each.ordinal)
            learned += [f"{kind.name}/{each.version}" for each in mine]
            # The newest last: no other affected one may take its place.
            for each in reversed(mine) if erase else ():
                if not known.is_revoked(each.version):
                    await publisher.revoke(tenant, each.version, "it learned from what was erased")
                await publisher.delete(known, each.version)
    return learned


def has_learned(version: AdapterManifest, found: Found) -> bool:
    """Whether a version is known to have learned from an erased session.

    A call model states its records, and a LoRA its sessions. If a session's records have left the log, every newer
    version counts.
    """
    placed: set[int] = set()
    if isinstance(version, LanguageModelManifest):
        if version.learned_from:
            # An exported data set names its sessions by their ids.
            return not (found.hashes | {stable_hash(id) for _, id in found.parts}).isdisjoint(
                unpack(version.learned_from)
            )
    else:
        on = found.topics.get("trajectories", OnTopic())
        ranges = {each.partition: each for each in version.data}
        if any(p in ranges and ranges[p].start <= offset < ranges[p].stop for p, offset in on.places):
            return True
        placed = on.sessions
    # An unknown session has no time, so it is left out.
    unplaced = [
        at for session, at in found.ended.items() if at > 0.0 and stable_hash(session_key(*session)) not in placed
    ]
    return any(version.created >= each for each in unplaced)
