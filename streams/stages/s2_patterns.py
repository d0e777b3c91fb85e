"""Merge observations into failure patterns and call health (stage 2).

A new failure is published at once, because other agents may be about to make the same call.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from fleetlore.clock import Clock
from fleetlore.recall.search import row_id
from fleetlore.wire.lore import PATTERN_LEVELS
from fleetlore.wire.stats import worsened
from models.memory.bottom_k import SessionCounts
from models.memory.pattern_parts import Period
from models.memory.pattern_state import HOUR_SECONDS, Observation, PatternState
from sinks.metrics import Metrics
from streams.stage.base import Effects, Outgoing, Record, Store, Values
from streams.stage.merging_stage import Key, MergingStage
from streams.stage.operators import Adopt, Forget, Operators, Reconsider

# Upper bounds in bytes of a state, and of one session in each sample.
STATE_BYTES, SESSION_BYTES = 4_000, 320
# Agents choose tool names. Only this many are remembered in a tenant, and as many have a time series of their own.
_REMEMBERED, _MOST_TOOLS, _OTHERS = 1_000, 100, "other"


class PatternsStage(MergingStage[PatternState, Observation]):
    name = "patterns"
    reads = "observations"
    values = Values(Observation, Forget | Reconsider | Adopt)

    def __init__(self, store: Store, clock: Clock, metrics: Metrics, operators: Operators | None = None) -> None:
        super().__init__(store, clock, metrics, operators)
        # By tenant and id: a tool, its agents and its hours, the newest first.
        self._hours: defaultdict[str, dict[str, tuple[str, int, tuple[Period, ...]]]] = defaultdict(dict)
        self._shown: defaultdict[str, set[str]] = defaultdict(set)
        self._changed_tenants: set[str] = set()

    def restore(self, row: dict[str, Any]) -> PatternState:
        return PatternState.restore(row["body"], row["state"])

    def id_of(self, value: Observation) -> str:
        return value.subject.id

    def session_of(self, value: Observation) -> int:
        return value.session

    def weigh(self, state: PatternState) -> int:
        return STATE_BYTES + SESSION_BYTES * state.size

    def discard(self, state: PatternState, sessions: Collection[int]) -> bool:
        return not sessions or state.discard(sessions)

    def join(self, state: PatternState, other: PatternState) -> None:
        state.join(other)

    def merge(
        self, tenant: str, state: PatternState | None, values: Sequence[Observation], effects: Effects
    ) -> tuple[PatternState, bool, bool]:
        new = state is None or not state.sample.kept
        if state is None:
            state = PatternState(values[0].subject)
        changed = False
        for seen in values:
            counts = SessionCounts(seen.agent, seen.calls, seen.failures, seen.ended, seen.again)
            changed |= state.add(seen.session, counts, seen.first, seen.last, seen.subject, seen.arrived)
            if seen.last > effects.newest:
                effects.newest = seen.last
        return state, changed, new

    def publish(self, key: Key, state: PatternState, effects: Effects) -> bytes | None:
        pattern = state.without(self._distrusted.agents(key[0])).to_pattern(key[0])
        body = pattern.to_json() if pattern.sessions else None
        effects.outgoing.append(Outgoing(key[0], "patterns", key[1], body))
        return body

    def row(self, key: Key, state: PatternState, effects: Effects) -> dict[str, Any]:
        tenant, subject = key[0], state.subject
        body = self.publish(key, state, effects)
        if body is None:
            kept = state.hidden_json() if state.sample.kept else ""
            return {"id": row_id(*key), "tenant": tenant, "body": "", "state": kept, "text": ""}
        if subject.level == "tool":
            agents, hours = state.sample.totals.agents, state.timelines["hours"].periods
            self._hours[tenant][subject.id] = subject.tool, agents, hours
            self._changed_tenants.add(tenant)
        return {
            "id": row_id(*key),
            "tenant": tenant,
            "level": subject.level,
            "tool": subject.tool,
            "error_class": subject.error_class,
            "body": body.decode(),
            "state": state.state_json(),
            # Health of whole tools and calls is listed and never searched.
            "text": f"{subject.tool} {subject.error_class} {subject.template or subject.shape}"
            if subject.level in PATTERN_LEVELS
            else "",
        }

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = await super().process(batch)
        if effects.acknowledged is not None:  # once a write: rows were handed on
            self._show_health()
        return effects

    def _show_health(self) -> None:
        """The tools of most agents get series: one agent invents many names."""
        tenants, self._changed_tenants = self._changed_tenants, set()
        # Senders may date events some minutes ahead, into an hour that has not come.
        latest = self._clock.now() // HOUR_SECONDS
        for tenant in tenants:
            ranked = []
            for id, (tool, agents, all_periods) in self._hours[tenant].items():
                if periods := [period for period in all_periods if period[0] <= latest]:
                    ranked.append((periods[0][0], agents, periods[0][1], tool, id, periods))
            ranked = sorted(ranked, reverse=True)[:_REMEMBERED]
            self._hours[tenant] = {id: self._hours[tenant][id] for *_, id, _ in ranked}
            found: defaultdict[str, list[tuple[int, int, int]]] = defaultdict(list)
            for rank, (hour, _, calls, tool, _, periods) in enumerate(ranked):
                if hour != ranked[0][0]:
                    break
                failures = periods[0][2]
                before = sum(past for _, past, _ in periods[1:]), sum(failed for _, _, failed in periods[1:])
                counted = calls, failures, worsened((calls, failures), before)
                found[tool if rank < _MOST_TOOLS else _OTHERS].append(counted)
            for tool in self._shown[tenant] - set(found):
                for family in (self._metrics.tool_calls, self._metrics.tool_failures, self._metrics.degraded_tools):
                    family.remove(tenant, tool)
            for tool, counts in found.items():
                calls, failures, bad = map(sum, zip(*counts, strict=True))
                self._metrics.tool_calls.labels(tenant, tool).set(calls)
                self._metrics.tool_failures.labels(tenant, tool).set(failures)
                self._metrics.degraded_tools.labels(tenant, tool).set(bad)
            self._shown[tenant] = set(found)
