"""Stage 4: candidates and evidence of their utility → memory items, in Milvus and on the compacted topic `items`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetlore.lore import HALF_LIFE_SECONDS, MemoryItem
from fleetlore.topics import tenant_of
from models.candidate import Candidate
from models.item_state import ItemState
from models.junk import is_junk
from models.utility import Evidence
from sinks.metrics import Metrics
from sinks.milvus import row_id
from streams.decode import Values
from streams.merging import MergedStates
from streams.stage import Effects, Outgoing, Record, Stage
from streams.store import Store

_CONTRIBUTIONS: Values[Candidate | Evidence] = Values(Candidate | Evidence)


class ItemsStage(Stage):
    """See the module."""

    name = "items"
    reads = "candidates"

    def __init__(self, store: Store, metrics: Metrics, half_life_seconds: float = HALF_LIFE_SECONDS) -> None:
        self._metrics = metrics
        self._half_life_seconds = half_life_seconds
        self._states: MergedStates[ItemState] = MergedStates(
            store, "items", lambda row: ItemState.from_json(row["state"].encode())
        )

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        contributions = [(tenant_of(record.topic), each) for record, each in _CONTRIBUTIONS.read(batch, effects)]
        states = await self._states.load({(tenant, each.item_id) for tenant, each in contributions})
        existed = {key for key, state in states.items() if state.is_item}
        changed: dict[tuple[str, str], ItemState] = {}
        for tenant, each in contributions:
            key = (tenant, each.item_id)
            state = states.get(key)
            if state is None:
                state = states[key] = ItemState.empty()
                self._states.remember(tenant, each.item_id, state)
            if state.merge(each):
                changed[key] = state
        for (tenant, id), state in changed.items():
            item = self._worth_recalling(state)
            body = item.to_json() if item is not None else b""
            if item is not None:
                effects.outgoing.append(Outgoing(tenant, "items", id, body))
                self._metrics.items(item.kind).inc()
            elif (tenant, id) in existed:
                # What was behind it was corrected or outweighed, or it does harm: agents must not go on learning from it.
                effects.outgoing.append(Outgoing(tenant, "items", id, None))
            effects.rows.setdefault("items", []).append(_row(tenant, id, state, item, body))
        return effects

    def _worth_recalling(self, state: ItemState) -> MemoryItem | None:
        item = state.to_item(self._half_life_seconds)
        reason = is_junk(item) if item is not None else None
        if reason is not None:
            self._metrics.junk_items(reason).inc()
            return None
        return item

    def forget(self) -> None:
        self._states.forget()


def _row(tenant: str, id: str, state: ItemState, item: MemoryItem | None, body: bytes) -> dict[str, Any]:
    """An item that still lacks a side is stored for its state, with an empty body: it is no item yet."""
    row: dict[str, Any] = {
        "id": row_id(tenant, id),
        "tenant": tenant,
        "state": state.to_json().decode(),
        "body": body.decode(),
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
