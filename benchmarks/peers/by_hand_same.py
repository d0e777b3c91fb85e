"""Do a worker's whole work by hand, in one loop: `python -m benchmarks.peers.by_hand_same FILE` (pickled records).

It calls our functions for the work: reading and cleaning events, sessions, counts of patterns, judges, distilling,
items. It has no stages, no topics and JSON between them, no Faust and no delivery. The price is what it cannot do: it
forgets open sessions when it dies, reads no state back, knows no second worker, and has no dead letters, corrections or
erasure. Rows go into dictionaries, those of states as often as a worker writes them.
"""

from __future__ import annotations

import asyncio
import gc
import pickle
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import orjson
from msgspec.structs import asdict

from benchmarks.pipeline import batches, decode_once
from benchmarks.traffic import TENANT
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.trajectory import Judgment, Trajectory, encode
from models.distil.distiller import distil
from models.judge import JudgeChain, SessionState
from models.memory.bottom_k import SessionCounts
from models.memory.candidate import Candidate, is_junk, is_unconfirmed
from models.memory.identities import without_identities
from models.memory.item_state import ItemState
from models.memory.pattern_state import PatternState
from streams.stage.base import Effects, Record
from streams.stages.s1_sessions.open_session import PART_EVENTS, OpenSession
from streams.stages.s1_sessions.parse import clean, read_events
from streams.stages.s2_patterns import PatternsStage
from streams.stages.s4_items import ItemsStage

NOBODY: frozenset[int] = frozenset()
Published = list[tuple[str, str, bytes | None]]  # topic, key, value


class ByHandSame:
    """All state of the script.

    Attributes:
        rows: by collection and id, as they would be in Milvus.
    """

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, dict[str, Any]]] = {"patterns": {}, "judgments": {}, "items": {}}
        self._sessions: dict[tuple[tuple[str, str], int], OpenSession] = {}
        self._patterns: dict[str, PatternState] = {}
        self._items: dict[str, ItemState] = {}
        self._changed_patterns: set[str] = set()
        self._changed_items: set[str] = set()
        self._patterns_written = self._items_written = time.monotonic()
        self._judge = JudgeChain()

    async def take(self, batch: Sequence[Record]) -> Published:
        """Process records of events; return the values for other agents and the trainer."""
        effects = Effects()
        published: Published = []
        read = [read_events(record, effects) for record in batch]
        clean(*read)  # the masking of a record has its own bound
        events = [event for record in read for event in record]
        failed: dict[int, OpenSession] = {}
        closed: list[OpenSession] = []
        for event in events:
            key = (event.agent, event.session), event.sequence // PART_EVENTS
            seconds = event.time.timestamp()
            session = self._sessions.get(key)
            if session is None:
                session = OpenSession(TENANT, event.session, event.agent, key[1], 0, seconds)
                self._sessions[key] = session
            elif event.sequence in session.sequences:
                continue
            session.add(event, seconds)
            if session.complete:
                del self._sessions[key]
                failed.pop(id(session), None)
                closed.append(session)
            elif session.has_new_failure:
                failed[id(session)] = session
        self._count([*failed.values(), *closed], published)
        await self._judge_all([session.close()[0] for session in closed], published)
        self.write(published, at_most_every=(PatternsStage.write_seconds, ItemsStage.write_seconds))
        return published

    def _count(self, sessions: Sequence[OpenSession], published: Published) -> None:
        new: dict[str, PatternState] = {}
        for session in sessions:
            for seen in session.take_observations():
                subject_id = seen.subject.id
                state = self._patterns.get(subject_id)
                if state is None:
                    state = self._patterns[subject_id] = new[subject_id] = PatternState(seen.subject)
                counts = SessionCounts(seen.agent, seen.calls, seen.failures, seen.ended, seen.again)
                if state.add(seen.session, counts, seen.first, seen.last, seen.subject):
                    self._changed_patterns.add(subject_id)
        published += [("patterns", each, state.to_pattern(TENANT).to_json()) for each, state in new.items()]

    async def _judge_all(self, trajectories: Sequence[Trajectory], published: Published) -> None:
        votes = [self._judge.votes(each) for each in trajectories]
        came: defaultdict[str, list[Candidate]] = defaultdict(list)
        for each, said in zip(trajectories, votes, strict=True):
            for contribution in self._taught(each, SessionState(trajectory=each, votes=said), said, published):
                came[contribution.item_id].append(contribution)
        for item_id, contributions in came.items():
            self._merge(item_id, contributions, published)

    def _taught(self, trajectory: Trajectory, state: SessionState, votes: Any, published: Published) -> list[Candidate]:
        verdict = self._judge.conclude(trajectory, votes)
        digest, encoded = trajectory.digested()
        state.trajectory = digest
        kept = Judgment(trajectory=digest, verdict=verdict)
        judgment = encode({"trajectory": msgspec.Raw(encoded), "verdict": verdict})
        published.append(("judgments", trajectory.session, judgment))
        taught = state.teach(without_identities(distil(kept), digest))
        outline = {"session": trajectory.session, "events": trajectory.events, **asdict(verdict)}
        body, kept_state = encode(outline).decode(), state.to_json(encoded).decode()
        self.rows["judgments"][trajectory.id] = {"label": verdict.label, "body": body, "state": kept_state}
        return taught

    def _merge(self, item_id: str, contributions: Sequence[Candidate], published: Published) -> None:
        item = self._items.get(item_id)
        if item is None:
            item = self._items[item_id] = ItemState()
        was_item = item.is_item
        if any([item.merge(each, NOBODY) for each in contributions]):
            self._changed_items.add(item_id)
        if item.is_item != was_item:
            told = worth_recalling(item)
            published.append(("items", item_id, None if told is None else told.to_json()))

    def write(self, published: Published, at_most_every: tuple[float, float] = (0.0, 0.0)) -> None:
        """Publish and write the states that have changed; `at_most_every` in seconds, of patterns and of items."""
        now = time.monotonic()
        if now - self._patterns_written >= at_most_every[0]:
            self._patterns_written = now
            for each in self._changed_patterns:
                state = self._patterns[each]
                body = state.to_pattern(TENANT).to_json()
                published.append(("patterns", each, body))
                self.rows["patterns"][each] = {"body": body.decode(), "state": state.state_json()}
            self._changed_patterns.clear()
        if now - self._items_written >= at_most_every[1]:
            self._items_written = now
            for each in self._changed_items:
                item = worth_recalling(self._items[each])
                value = None if item is None else item.to_json()
                published.append(("items", each, value))
                row = {"body": "" if value is None else value.decode(), "state": self._items[each].to_json().decode()}
                self.rows["items"][each] = row
            self._changed_items.clear()


def worth_recalling(state: ItemState) -> MemoryItem | None:
    """The item of a state, if agents read it."""
    item = state.to_item()
    return None if item is None or is_junk(item) or is_unconfirmed(item) else item


def counted(rows: dict[str, dict[str, dict[str, Any]]]) -> dict[str, int]:
    """How many rows there are, those of states that are no items yet beside those that are."""
    public = sum(bool(row["body"]) for row in rows["items"].values())
    return {name: len(rows[name]) for name in ("patterns", "judgments", "items")} | {"public items": public}


async def from_file(file: Path) -> dict[str, Any]:
    """One pass over records, without a broker."""
    records = pickle.loads(file.read_bytes())
    work, made = ByHandSame(), list(batches(records))
    gc.collect()
    gc.freeze()
    cpu = time.process_time()
    for batch in made:
        await work.take(batch)
    work.write([])
    spent = time.process_time() - cpu
    return {"cpu_seconds": spent, "loads_seconds": decode_once(records), "counts": counted(work.rows)}


if __name__ == "__main__":
    print(orjson.dumps(asyncio.run(from_file(Path(sys.argv[1])))).decode())
