"""Replay logged sessions through the pipeline as a fleet would send them, agents interleaved by a seed.

    python -m benchmarks.replay FOLDER [--seed N]

It starts a stack of its own and prints the rate and a hash of all that is known after it.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

import orjson

from benchmarks.runs import read_runs
from fleetlore.config import DEFAULT_TENANT, Settings
from fleetlore.errors import BrokerUnavailable
from fleetlore.kafka.emitter import Emitter
from fleetlore.kafka.read import end_offsets, observer, partitions_of
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire.events import Event
from fleetlore.wire.topics import topic
from sinks.collections import COLLECTIONS, Collection
from sinks.milvus import MilvusStore
from streams.embedded.stack import Stack
from streams.offline.operator_word import wait_drained

__all__ = ["CONCURRENT_SESSIONS", "Knowledge", "ReplayReport", "interleave", "read_knowledge", "replay"]

# Number of concurrent agents, and the time between two events on the replay's own clock.
CONCURRENT_SESSIONS = 64
_TICK_SECONDS = 0.001
# Events emitted before the emitter's task gets a turn.
_BURST_EVENTS = 256
_BUFFER_EVENTS = 20_000

TIMES = frozenset({"first_seen", "last_seen", "last_but_one", "agents_lately", "outages", "hours", "days", "balanced"})


@dataclass(slots=True)
class Knowledge:
    """Contents of one tenant's collections, as counts and as one hash.

    Two runs over the same events must give the same hash, whatever process died in between and however agents were
    interleaved. So it covers ids and contents and leaves out all times, which say when something was seen and not what
    is known.

    Attributes:
        patterns: counts by level, health rows (`tool`, `call`) included.
        items: counts by kind.
        judgments: (session, label, number of events behind it) of each.
        state_hash: 32 hex digits.
    """

    patterns: Counter[str] = field(default_factory=Counter)
    items: Counter[str] = field(default_factory=Counter)
    judgments: list[tuple[str, str, int]] = field(default_factory=list)
    state_hash: str = ""


async def read_knowledge(store: MilvusStore, tenant: str, collections: Sequence[Collection] = COLLECTIONS) -> Knowledge:
    """Read a tenant's rows of these collections.

    Raises:
        StoreUnavailable: Milvus does not answer.
    """
    knowledge = Knowledge()
    lines: list[bytes] = []
    for collection in collections:
        async for row in store.rows(collection.name, tenant, "body"):
            if not row["body"]:
                continue  # incomplete: an item that lacks a side, or feedback on a session that has not ended
            body = orjson.loads(row["body"])
            match collection.name:
                case "patterns":
                    knowledge.patterns[body["level"]] += 1
                case "items":
                    knowledge.items[body["kind"]] += 1
                case _:
                    knowledge.judgments.append((body["session"], body["label"], body["events"]))
            lines.append(orjson.dumps([collection.name, row["id"], _timeless(body)], option=orjson.OPT_SORT_KEYS))
    knowledge.state_hash = blake2b(b"\n".join(sorted(lines)), digest_size=16).hexdigest()
    return knowledge


def _timeless(body: dict[str, Any]) -> dict[str, Any]:
    content = {name: value for name, value in body.items() if name not in TIMES}
    if "again" in content:
        content["again"] = content["again"][:-1]  # without the seconds between a call and the same call again
    return content


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """Result of a replay.

    Attributes:
        events_processed: events behind the stored judgments of the replayed sessions.
        judgments: of the replayed sessions, by label.
        patterns, memory_items: totals of the tenant after the replay.
    """

    events_in: int
    events_processed: int
    dead_letters: int
    sessions: int
    judgments: dict[str, int]
    patterns: dict[str, int]
    memory_items: int
    seconds: float
    events_per_second: float
    state_hash: str


def interleave(sessions: list[LoggedSession], tenant: str, seed: int, end_time: float) -> Iterator[Event]:
    """Yield the events of all sessions, each session in order, agents interleaved at random.

    Args:
        end_time: time of the last event, in seconds since the Unix epoch; the others lie `_TICK_SECONDS` apart before
            it.
    """
    rng = Random(seed)
    waiting = list(sessions)
    rng.shuffle(waiting)
    active: list[tuple[LoggedSession, Iterator[tuple[int, Any]]]] = []
    moment = end_time - _TICK_SECONDS * sum(len(session.events) + 2 for session in sessions)
    while waiting or active:
        while waiting and len(active) < CONCURRENT_SESSIONS:
            session = waiting.pop()
            active.append((session, enumerate(session.all_events())))
        index = rng.randrange(len(active))
        session, events = active[index]
        step = next(events, None)
        if step is None:
            active[index] = active[-1]
            active.pop()
            continue
        sequence, (kind, data) = step
        moment += _TICK_SECONDS
        yield Event(kind, tenant, session.agent, session.session, sequence, moment, data)


async def replay(
    sessions: list[LoggedSession], settings: Settings, *, tenant: str, seed: int, timeout_seconds: float
) -> ReplayReport:
    """Send the sessions, wait until the pipeline has processed them, and report the result.

    Raises:
        BrokerUnavailable: the broker did not take the events in time.
        StoreUnavailable: Milvus does not answer.
        StackError: the pipeline did not keep up with `timeout_seconds`.
    """
    dead_before = await count_dead_letters(settings, tenant)
    started = time.monotonic()
    sent = await _send(interleave(sessions, tenant, seed, time.time()), settings, tenant, timeout_seconds)
    await wait_drained(settings, tenant, timeout_seconds)
    seconds = time.monotonic() - started
    async with MilvusStore.from_settings(settings) as store:
        knowledge = await read_knowledge(store, tenant)
    ids = {session.session for session in sessions}
    judgments = [judgment for judgment in knowledge.judgments if judgment[0] in ids]
    labels = Counter(label for _, label, _ in judgments)
    return ReplayReport(
        events_in=sent,
        events_processed=sum(events for *_, events in judgments),
        dead_letters=await count_dead_letters(settings, tenant) - dead_before,
        sessions=len(sessions),
        judgments={label: labels[label] for label in ("success", "failure", "abstained")},
        patterns={level: knowledge.patterns[level] for level in ("family", "class", "exact")},
        memory_items=knowledge.items.total(),
        seconds=round(seconds, 3),
        events_per_second=round(sent / seconds, 1),
        state_hash=knowledge.state_hash,
    )


async def _send(events: Iterator[Event], settings: Settings, tenant: str, timeout_seconds: float) -> int:
    emitter = Emitter(settings.cluster, tenant, max_events=_BUFFER_EVENTS, principal_key=settings.principal_key)
    await emitter.start()
    try:
        for number, event in enumerate(events, 1):
            # A replay may wait, unlike an agent: no event is dropped for lack of room.
            while emitter.full:
                await asyncio.sleep(0.005)
            emitter.emit(event)
            if number % _BURST_EVENTS == 0:
                await asyncio.sleep(0)
        if not await emitter.flush(timeout_seconds):
            raise BrokerUnavailable(f"the broker at {settings.broker} did not take {emitter.waiting} events in time")
        return emitter.sent
    finally:
        await emitter.close()


async def count_dead_letters(settings: Settings, tenant: str) -> int:
    """Count the records ever written to the tenant's dead-letter topic, marks of redriven ones included.

    Raises:
        BrokerUnavailable: the broker does not answer.
    """
    async with observer(settings.cluster) as consumer:
        partitions = await partitions_of(consumer, topic(tenant, "dead-letters"))
        return sum((await end_offsets(consumer, partitions)).values())


async def _main(sessions: list[LoggedSession], seed: int) -> ReplayReport:
    with tempfile.TemporaryDirectory(prefix="fleetlore-") as folder:
        async with Stack(folder, tenants=(DEFAULT_TENANT,), trainer=False) as stack:
            return await replay(sessions, stack.settings, tenant=DEFAULT_TENANT, seed=seed, timeout_seconds=600)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="logged sessions, as `fleetlore import` reads them")
    parser.add_argument("--seed", type=int, default=0, help="of the order in which agents take turns")
    given = parser.parse_args()
    print(orjson.dumps(asdict(asyncio.run(_main(read_runs(given.folder), given.seed)))).decode())
