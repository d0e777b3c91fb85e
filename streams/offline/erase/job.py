"""Erase sessions, step by step, while the fleet goes on.

1. What is erased is written to the topic `erasures`: every stage drops it from then on, a backfill too.
2. The owner of each state that knows an erased session is asked to forget it (`streams.offline.operator_word`), until
   no state knows one. Agents hear of it as of any change of lore.
3. The rows of judgments are deleted, and those of states in which nothing is left; Milvus is asked to compact.
4. Adapter versions that have learned of it are revoked and deleted; the trainer learns new ones without it.

What the log itself holds ages out: the report says when. A run that was stopped is begun again by the same command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fleetlore.clock import SystemClock
from fleetlore.config import Settings
from fleetlore.errors import StackError
from fleetlore.lora.adapter import unpack
from fleetlore.stats.hashing import stable_hash
from fleetlore.wire.adapter_manifest import ADAPTERS, SCHEMA, AdapterManifest, LanguageModelManifest
from models.judge.record import JudgeRecord
from sinks.adapter_publisher import AdapterPublisher
from sinks.milvus import MilvusStore
from sinks.producer import BatchProducer
from streams.offline.drain import BEHIND, wait_drained
from streams.offline.erase.found import Found, Wanted, find, look_at_rows
from streams.offline.operator_word import States, ask_owners, beside_workers, requests, states_that
from streams.stage.base import Outgoing, Store
from streams.stage.erased import TOPIC, Erasure, Forget
from streams.stages.s3_judgments.judge_records import LABEL

__all__ = ["erase", "forgets", "touched"]

# A worker hears of an erasure within a fetch.
_HEARD_SECONDS = 2.0
# Rounds in which what was under way at the first is found.
_ROUNDS = 5

_REASON = "it learned from what was erased"


# Find the adapter versions that have learned of erased sessions, revoke them and delete their weights.
#
# A version of the call model or of the retrieval adapter says which records it learned from, a LoRA of a language
# model which sessions. Where the records of a session have left the log, a version that was made after the session is
# taken for one that learned from it. The trainer, which hears of the erasure too, learns new versions without.
async def learned_versions(settings: Settings, tenant: str, found: Found, *, erase: bool) -> list[str]:
    """Return the versions that have learned of it, the newest first, revoked and deleted where that is asked for.

    None where no key is set to sign with: revocations come from where the key is.

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
                    await publisher.revoke(tenant, each.version, _REASON)
                await publisher.delete(registry, each)
    return learned


def has_learned(version: AdapterManifest, found: Found) -> bool:
    """Whether a version has learned of an erased session, for all that is known."""
    if isinstance(version, LanguageModelManifest):
        erased = {each for of_session in found.hashes.values() for each in of_session}
        if version.learned_from:
            return not erased.isdisjoint(unpack(version.learned_from))
        return _after(version, [each for each in found.ended.values() if each > 0.0])
    ranges = {each.partition: each for each in version.data}
    places = found.positions.get("trajectories", set())
    held = any(p in ranges and ranges[p].start <= offset < ranges[p].stop for p, offset, _ in places)
    return held or _after(version, found.ended_unplaced("trajectories"))


def _after(version: AdapterManifest, ended: Sequence[float]) -> bool:
    return any(version.created >= each for each in ended)


def remaining(settings: Settings, *, compacting: bool) -> dict[str, str]:
    """Where bytes lie on of which no date is known, and how long; `compacting`: a cluster still holds deleted rows."""
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
        left["notes of a language model on other sessions that it read beside these"] = (
            "may hold a name of these, until the item is revoked"
        )
    if not settings.signing_key:
        left["adapter versions"] = "not looked at, no signing key"
    return left


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasing:
    """What was, or (of a dry run) would be, erased.

    Attributes:
        sessions: how many.
        records: on the log, by topic, how many records name one of them; none of them is taken up again.
        until: by topic, when the last of these has left the log, in seconds since the Unix epoch.
        rows: of Milvus, by collection: judgments deleted, patterns and items changed or deleted.
        cases: of judges' records.
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
    cases: int
    versions: Sequence[str]
    remains: Mapping[str, str]
    schema: int = SCHEMA

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


async def erase(settings: Settings, wanted: Wanted, *, dry_run: bool, timeout_seconds: float) -> Erasing:
    """Erase what is wanted, with the workers running; of a dry run only look.

    Raises:
        StoreUnavailable, BrokerUnavailable: one of the two does not answer; run it again.
        StackError: the workers did not do their part in time; run it again.
    """
    async with beside_workers(settings, wanted.tenant, timeout_seconds) as (store, producer):
        return await _erase(settings, store, producer, wanted, dry_run, timeout_seconds)


async def _erase(
    settings: Settings,
    store: MilvusStore,
    producer: BatchProducer,
    wanted: Wanted,
    dry_run: bool,
    timeout_seconds: float,
) -> Erasing:
    now, compacting = SystemClock().now(), False
    found = await find(settings, store, wanted)
    versions: list[str] = []
    first = await touched(store, wanted.tenant, _flat(found))
    if dry_run:
        versions = await learned_versions(settings, wanted.tenant, found, erase=False)
    if not dry_run and (found.parts or wanted.agent):
        await _announce(producer, wanted, found, now)
        await asyncio.sleep(_HEARD_SECONDS)
        # Now: what is published from here on has not learned of it.
        versions = await learned_versions(settings, wanted.tenant, found, erase=True)
        await _until_forgotten(settings, store, producer, wanted, found, timeout_seconds)
        await store.delete("judgments", found.rows)
        for collection, ids in (await touched(store, wanted.tenant, ())).empty.items():
            await store.delete(collection, ids)
        compacting = await store.purge()
    rows = {"judgments": len(found.rows), "patterns": len(first.patterns), "items": len(first.items)}
    return Erasing(
        scope=wanted.scope,
        tenant=wanted.tenant,
        done=not dry_run,
        time=now,
        sessions=len(found.parts),
        records=found.records,
        until=found.until,
        rows=rows,
        cases=len(first.cases),
        versions=versions,
        remains=remaining(settings, compacting=compacting and any(rows.values())),
    )


async def _announce(producer: BatchProducer, wanted: Wanted, found: Found, now: float) -> None:
    erasures = [Erasure(time=now, sessions=hashes) for hashes in found.hashes.values()]
    if wanted.agent:
        # What it has sent and nobody has read yet is dropped, too.
        erasures.append(Erasure(time=now, agent=stable_hash(wanted.agent), before=now))
    await producer.deliver([Outgoing(wanted.tenant, TOPIC, each.key, each.to_json()) for each in erasures])


async def _until_forgotten(
    settings: Settings,
    store: MilvusStore,
    producer: BatchProducer,
    wanted: Wanted,
    found: Found,
    timeout_seconds: float,
) -> None:
    """Ask the owners until no state knows an erased session.

    Raises:
        StackError: some state still does after several rounds.
    """
    tenant = wanted.tenant
    for _ in range(_ROUNDS):
        await wait_drained(settings, tenant, timeout_seconds, BEHIND)
        # What a worker had judged before it heard of the erasure.
        await look_at_rows(store, wanted, found)
        left = await touched(store, tenant, _flat(found))
        if not left:
            return
        await ask_owners(settings, producer, tenant, forgets(tenant, left, found.hashes), left.items, _flat(found))
    raise StackError(f"states of tenant {tenant} still know what was erased after {_ROUNDS} rounds: run it again")


async def touched(store: Store, tenant: str, sessions: Iterable[int]) -> States:
    """Look through all states of a tenant for those that know erased sessions (hashes), records of judges too.

    Raises:
        StoreUnavailable: Milvus does not answer.
    """
    wanted = frozenset(sessions)
    found = await states_that(lambda state: wanted & state.sessions, store, tenant)
    async for row in store.rows("judgments", tenant, "state", label=LABEL):
        found.cases |= wanted & JudgeRecord.from_json(row["state"]).cases.kept.keys()
    return found


def forgets(tenant: str, found: States, sessions: Mapping[str, tuple[int, ...]]) -> list[Outgoing]:
    """What goes to the owners. `sessions`: by id, the hashes of it and of its parts."""
    # A session's judge records are those of its own partition.
    judged = [(session, known) for session, known in sessions.items() if not found.cases.isdisjoint(known)]
    return [
        *requests(tenant, found, lambda id, known: Forget(id, known).to_json()),
        *(Outgoing(tenant, "trajectories", session, Forget("", known).to_json()) for session, known in judged),
    ]


def _flat(found: Found) -> list[int]:
    return [each for hashes in found.hashes.values() for each in hashes]
