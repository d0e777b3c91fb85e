"""Stage 2: observations → failure patterns and call health, in Milvus and on the compacted topic `patterns`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetlore.topics import tenant_of
from models.pattern_state import PatternState
from sinks.milvus import row_id
from streams.decode import decode_values
from streams.merging import MergedStates
from streams.observation import Observation
from streams.stage import Effects, Outgoing, Record, Stage
from streams.store import Store


class PatternsStage(Stage):
    """See the module."""

    name = "patterns"
    reads = "observations"

    def __init__(self, store: Store) -> None:
        self._states: MergedStates[PatternState] = MergedStates(
            store, "patterns", lambda row: PatternState.restore(row["body"], row["state"])
        )

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        observations = [
            (tenant_of(record.topic), observation)
            for record, observation in decode_values(batch, Observation.from_row, effects)
        ]
        states = await self._states.load({(tenant, seen.subject.id) for tenant, seen in observations})
        changed: dict[tuple[str, str], PatternState] = {}
        for tenant, (subject, session, seen) in observations:
            effects.newest = max(effects.newest, seen.last)
            key = (tenant, subject.id)
            state = states.get(key)
            if state is None:
                state = states[key] = PatternState.new(*subject)
                self._states.remember(tenant, subject.id, state)
            if state.add(session, seen):
                changed[key] = state
        for (tenant, id), state in changed.items():
            pattern = state.to_pattern(tenant).to_json()
            effects.outgoing.append(Outgoing(tenant, "patterns", id, pattern))
            effects.rows.setdefault("patterns", []).append(_row(tenant, state, pattern))
        return effects

    def forget(self) -> None:
        self._states.forget()


def _row(tenant: str, state: PatternState, pattern: bytes) -> dict[str, Any]:
    return {
        "id": row_id(tenant, state.id),
        "tenant": tenant,
        "level": state.level,
        "tool": state.tool,
        "error_class": state.error_class,
        "body": pattern.decode(),
        "state": state.state_json(),
        "text": f"{state.tool} {state.error_class} {state.template or state.shape}",
    }
