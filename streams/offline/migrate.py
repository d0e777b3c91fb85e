"""Rebuild an embedded stack's collections that another release filled, while no worker runs.

Rows of another schema or encoder are not converted: a backfill fills a new version. Sessions that are no longer on the
log come back from the digests in their judgments.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

import orjson
from pymilvus import MilvusClient

from fleetlore.config import Settings
from fleetlore.errors import FleetloreError
from fleetlore.recall.encoder import installed_encoder
from fleetlore.wire import events as ev
from fleetlore.wire.events import Event, Kind
from fleetlore.wire.principals import session_key
from fleetlore.wire.trajectory import Step, Trajectory
from models.judge import SessionState
from sinks.collections import COLLECTIONS, Found, drop_version, look_at_collections, make_live
from sinks.milvus import MilvusStore
from streams.offline.backfill import Backfill
from streams.offline.republish import republish

__all__ = ["migrate"]

_BATCH_SESSIONS = 128
_SAY_SECONDS = 2.0

Say = Callable[[str], None]


async def migrate(settings: Settings, say: Say) -> bool:
    async with MilvusStore.from_settings(settings) as live:
        found = await live.on_client(lambda client: look_at_collections(client, installed_encoder()))
        if not found.other and not found.missing:
            return False
        tenants = await live.on_client(_tenants_of_rows)
        async with Backfill(settings, found.target, tenants) as backfill:
            await backfill.begin()
            events = await backfill.remaining()
            if not found.other and not events:
                return False  # a new folder: a worker creates its collections
            say(
                f"{_reason(found)}: its lore is made again from {events:,} events; nothing is deleted before it is done"
            )
            await backfill.fill(_Progress(say, "events", events))
        # Its stages do not know the log, because digests have no offsets.
        async with Backfill(settings, found.target, tenants) as backfill:
            lost = await _bring_back(live, backfill, say)
            await backfill.heed()
            await backfill.keep_decisions()
            await republish(settings.with_(tenants=backfill.tenants), backfill.store)
            await backfill.store.on_client(lambda client: make_live(client, found.target))
        old = found.versions - {found.target}
        for version in () if lost else old:
            await live.on_client(lambda client, name=version: drop_version(client, name))  # type: ignore[misc]
        kept = f"; the old rows stay, until `fleetlore backfill drop {min(old)}`" if lost and old else ""
        say(f"the lore of this folder is that of this release now{kept}")
        return True


def _reason(found: Found) -> str:
    if found.other:
        return f"this folder's {', '.join(found.other)} were filled with {found.made_by}, by another release"
    return f"this folder has no collection {', '.join(found.missing)}, but events"


def _tenants_of_rows(client: MilvusClient) -> frozenset[str]:
    tenants: set[str] = set()
    for collection in COLLECTIONS:
        if client.has_collection(collection.name):
            pages = client.query_iterator(collection.name, batch_size=1_000, output_fields=["tenant"])
            while page := pages.next():
                tenants.update(row["tenant"] for row in page)
            pages.close()
    return frozenset(tenants)


async def _bring_back(live: MilvusStore, backfill: Backfill, say: Say) -> int:
    found: dict[tuple[str, str], list[Trajectory]] = {}
    unreadable = 0
    for tenant in backfill.tenants:
        unreadable += await _collect(live, backfill.store, tenant, found)
    if unreadable:
        say(f"{unreadable:,} judged sessions cannot be read by this release and are not on the log: they are "
            "left out of the lore")  # fmt: skip
    sessions = list(found.values())
    if sessions:
        count = sum(any(part.left_out for part in parts) for parts in sessions)
        cut = f"; {count:,} of them were long, and come back without some of their calls" if count else ""
        say(f"{len(sessions):,} sessions are not on the log: they come back from what was kept of them{cut}")
    progress = _Progress(say, "sessions", len(sessions))
    for start in range(0, len(sessions), _BATCH_SESSIONS):
        batch = sessions[start : start + _BATCH_SESSIONS]
        await backfill.process([event for parts in batch for event in _events_of(parts)])
        progress(start + len(batch))
    return unreadable


async def _collect(
    live: MilvusStore, new: MilvusStore, tenant: str, found: dict[tuple[str, str], list[Trajectory]]
) -> int:
    known, ids, unreadable = dict[str, int](), set[str](), 0
    async for row in new.rows("judgments", tenant, "session", "state"):
        ids.add(row["session"])
        if (made := SessionState.from_json(row["state"]).trajectory) is not None:
            known[made.id] = made.events
    if not await live.on_client(lambda client: client.has_collection("judgments")):
        return 0
    async for row in live.rows("judgments", tenant, "state"):
        try:
            trajectory = SessionState.from_json(row["state"]).trajectory
        except ValueError:
            id = row["id"].partition("/")[2]  # an earlier release named a row by the session's id and part
            unreadable += ids.isdisjoint((id, id.rpartition("#")[0]))
            continue
        if trajectory is not None and known.get(trajectory.id, 0) < trajectory.events:
            parts = found.setdefault((tenant, session_key(trajectory.agent, trajectory.session)), [])
            parts.append(trajectory)
            parts.sort(key=lambda part: part.part)
    return unreadable


def _events_of(parts: list[Trajectory]) -> list[Event]:
    first, last = parts[0], parts[-1]
    started: dict[str, Any] = {ev.GOAL: first.goal, ev.TASK: first.task, ev.PLACE: first.place, ev.USER: first.user}
    made: list[tuple[Kind, int, float, dict[str, Any]]] = [("session.started", 0, first.started, _given(started))]
    for part in parts:
        for number, step in enumerate(part.steps, 1):
            moment = part.started + (part.ended - part.started) * number / (len(part.steps) + 1)
            kind: Kind = "outcome" if step.role == "tool" else "message"
            made.append((kind, step.sequence, moment, _given(_data_of(step))))
    ending = "unknown" if last.ending == "continued" else last.ending
    ended = {ev.OUTCOME: ending, ev.REWARD: last.reward, ev.VIOLATION: last.guard}
    made.append(("session.ended", made[-1][1] + 1, last.ended, _given(ended)))
    events = [
        Event(kind, first.tenant, first.agent, first.session, sequence, moment, data)
        for kind, sequence, moment, data in made
    ]
    if (given := last.feedback) is not None and not given.claimed:
        events.append(
            Event("feedback", first.tenant, given.by, first.session, 0, given.time, {ev.OUTCOME: given.label})
        )
    return events


def _data_of(step: Step) -> dict[str, Any]:
    if step.role != "tool":
        return {ev.ROLE: step.role, ev.CONTENT: step.result}
    try:
        arguments = orjson.loads(step.arguments)
    except orjson.JSONDecodeError:
        arguments = step.arguments
    shown = {ev.ADVICE: list(step.advice), ev.WITHHELD: list(step.withheld), ev.ADAPTER: step.adapter}
    error = {ev.ERROR_TYPE: step.error_type, ev.ERROR_MESSAGE: step.error_message}
    call = {ev.TOOL: step.tool, ev.ARGUMENTS: arguments, ev.RESULT: step.result, ev.DURATION: step.duration_seconds}
    return call | error | shown


def _given(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value not in (None, "", [])}


class _Progress:
    def __init__(self, say: Say, what: str, total: int) -> None:
        self._say, self._what, self._total = say, what, total
        self._next = time.monotonic() + _SAY_SECONDS

    def __call__(self, done: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _SAY_SECONDS
            self._say(f"{min(done, self._total):,} of {self._total:,} {self._what}")


def _say(line: str) -> None:
    print(f"fleetlore: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(migrate(Settings.from_env(), _say))
    except FleetloreError as error:
        _say(str(error))
        sys.exit(1)
