"""Stage 4: candidates and evidence of their utility → memory items, in Milvus and on the compacted topic `items`.

What has become an item goes out at once, and what is none any more is taken back at once. One that is known gets a session more
or less behind it with every batch, so it is published and stored together with all that has changed, every five seconds; the
commit waits for it (`streams.stage.write_buffer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleetlore.clock import Clock
from fleetlore.config import HALF_LIFE_SECONDS
from fleetlore.wire.lore import MemoryItem
from fleetlore.wire.topics import tenant_of
from models.memory.candidate import Candidate
from models.memory.item_state import ItemState
from models.memory.quality import is_junk
from models.memory.utility import Evidence
from sinks.metrics import Metrics
from sinks.milvus import row_id
from streams.stage.base import Effects, Outgoing, Record, Stage, TopicPartition
from streams.stage.codec import Values
from streams.stage.cooperative import yielding
from streams.stage.state_cache import StateCache
from streams.stage.store import Store
from streams.stage.write_buffer import Key, WriteBuffer

WRITE_SECONDS = 10.0
MAX_WAITING = 4_000

_CONTRIBUTIONS: Values[Candidate | Evidence] = Values(Candidate | Evidence)


@dataclass(slots=True)
class _Change:
    """A state that has changed since its row was written.

    Attributes:
        public: it was an item at some time since, or before: agents may have it.
        told: agents have it as it is now.
    """

    state: ItemState
    public: bool = False
    told: bool = False


class ItemsStage(Stage):
    """See the module."""

    name = "items"
    reads = "candidates"
    linger_seconds = 0.2  # as of the stage before

    def __init__(
        self, store: Store, clock: Clock, metrics: Metrics, half_life_seconds: float = HALF_LIFE_SECONDS
    ) -> None:
        self._metrics = metrics
        self._half_life_seconds = half_life_seconds
        self._states: StateCache[ItemState] = StateCache(
            store, "items", lambda row: ItemState.from_json(row["state"].encode())
        )
        self._held: WriteBuffer[_Change] = WriteBuffer(clock, WRITE_SECONDS, MAX_WAITING)

    @property
    def holds(self) -> bool:
        return bool(self._held)

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        contributions = [(tenant_of(record.topic), each) for record, each in _CONTRIBUTIONS.read(batch, effects)]
        source, waiting = self._states.source, self._held.waiting
        states = await self._states.load({(tenant, each.item_id) for tenant, each in contributions})
        if self._states.source != source:
            # A backfill has taken the name over: what waits was made of the old collection's rows.
            self._held.drop()
        was_item: dict[Key, bool] = {}
        for tenant, each in contributions:
            key = tenant, each.item_id
            # One that waits or is being written may have been dropped from memory, and is newer than what the store has.
            change = self._held.newest(key)
            state = states.get(key) if change is None else change.state
            if state is None:
                state = states[key] = ItemState.empty()
                self._states.remember(tenant, each.item_id, state)
            is_item = state.is_item
            if state.merge(each):
                was_item.setdefault(key, is_item)
                change = waiting.setdefault(key, _Change(state))
                change.public |= is_item
                change.told = False
        if self._held.due(batch):
            await self._write(effects)
        else:
            for key, before in was_item.items():
                if waiting[key].state.is_item != before:
                    self._tell(key, waiting[key], effects)
        return effects

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        return self._held.committable(tp, next_offset)

    async def _write(self, effects: Effects) -> None:
        rows = effects.rows.setdefault("items", [])
        async for (tenant, id), change in yielding(list(self._held.waiting.items())):
            item = self._tell((tenant, id), change, effects)
            rows.append(_row(tenant, id, change.state, item))
        effects.acknowledged = self._held.written_behind()

    def _tell(self, key: Key, change: _Change, effects: Effects) -> MemoryItem | None:
        """The item as it is now, if it is one; where agents have it otherwise, they get it."""
        item = self._worth_recalling(change.state)
        if change.told:
            return item
        change.told = True
        if item is not None:
            change.public = True
            effects.outgoing.append(Outgoing(key[0], "items", key[1], item.to_json()))
            self._metrics.items(item.kind).inc()
        elif change.public:
            # What was behind it was corrected or outweighed, or it does harm: agents must not go on learning from it.
            effects.outgoing.append(Outgoing(key[0], "items", key[1], None))
        return item

    def _worth_recalling(self, state: ItemState) -> MemoryItem | None:
        item = state.to_item(self._half_life_seconds)
        reason = is_junk(item) if item is not None else None
        if reason is not None:
            self._metrics.junk_items(reason).inc()
            return None
        return item

    def forget(self) -> None:
        self._states.forget()
        self._held.forget()


def _row(tenant: str, id: str, state: ItemState, item: MemoryItem | None) -> dict[str, Any]:
    """An item that still lacks a side is stored for its state, with an empty body: it is no item yet."""
    row: dict[str, Any] = {
        "id": row_id(tenant, id),
        "tenant": tenant,
        "state": state.to_json().decode(),
        "body": "" if item is None else item.to_json().decode(),
        "text": "",
    }
    if item is not None:
        row |= {
            "kind": item.kind,
            "tool": item.tool,
            "pattern": item.pattern,
            "task": item.task,
            "text": f"{item.title}\n{item.description}\n{item.when}",
        }
    return row
