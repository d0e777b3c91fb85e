"""Stage 4: candidates → memory items, in Milvus and on the compacted topic `items`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetlore.lore import MemoryItem
from fleetlore.topics import tenant_of
from models.candidate import Candidate
from models.item_state import ItemState
from sinks.metrics import Metrics
from sinks.milvus import row_id
from streams.decode import Values
from streams.merging import MergedStates
from streams.stage import Effects, Outgoing, Record, Stage
from streams.store import Store

_CANDIDATES: Values[Candidate] = Values(Candidate)


class ItemsStage(Stage):
    """See the module."""

    name = "items"
    reads = "candidates"

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._metrics = metrics
        self._states: MergedStates[ItemState] = MergedStates(
            store, "items", lambda row: ItemState.from_json(row["state"].encode())
        )

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        candidates = [(tenant_of(record.topic), candidate) for record, candidate in _CANDIDATES.read(batch, effects)]
        states = await self._states.load({(tenant, candidate.item_id) for tenant, candidate in candidates})
        existed = {key for key, state in states.items() if state.is_item}
        changed: dict[tuple[str, str], ItemState] = {}
        for tenant, candidate in candidates:
            key = (tenant, candidate.item_id)
            state = states.get(key)
            if state is None:
                state = states[key] = ItemState.empty()
                self._states.remember(tenant, candidate.item_id, state)
            if state.merge(candidate):
                changed[key] = state
        for (tenant, id), state in changed.items():
            item = state.to_item()
            body = item.to_json() if item is not None else b""
            if item is not None:
                effects.outgoing.append(Outgoing(tenant, "items", id, body))
                self._metrics.items(item.kind).inc()
            elif (tenant, id) in existed:
                # The verdicts behind it were corrected: agents must not go on learning from them.
                effects.outgoing.append(Outgoing(tenant, "items", id, None))
            effects.rows.setdefault("items", []).append(_row(tenant, id, state, item, body))
        return effects

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
