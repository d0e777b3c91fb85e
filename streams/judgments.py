"""Stage 3: trajectories → judgments, in Milvus and on the topic `judgments`, and what each contributes to memory items.

The contributions (`candidates`) are keyed by item where all else here is keyed by session: their topic brings those to one
item together on one partition, where a single writer merges them.

A session brings the corrections (feedback) along that came while it was remembered by the stage before. A later one finds the
session in the store. One that came before all of its session, which only a log out of order has, waits in a row of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from fleetlore.topics import tenant_of
from fleetlore.trajectory import Feedback, Judgment, Trajectory, encode
from models.distiller import distil
from models.judge import JudgeChain
from sinks.metrics import Metrics
from sinks.milvus import row_id
from streams.decode import Values
from streams.stage import Effects, Outgoing, Record, Stage
from streams.store import Store

_VALUES: Values[Trajectory | Feedback] = Values(Trajectory | Feedback)

# Label, and end of the id, of a row that holds a correction whose session has not been closed yet.
PENDING = "pending"
_read_trajectory = msgspec.json.Decoder(Trajectory).decode
_read_feedback = msgspec.json.Decoder(Feedback).decode


class JudgmentsStage(Stage):
    """See the module."""

    name = "judgments"
    reads = "trajectories"

    def __init__(self, store: Store, judge: JudgeChain, metrics: Metrics) -> None:
        self._store = store
        self._judge = judge
        self._metrics = metrics
        self._pending: dict[str, dict[str, Feedback]] = {}
        self._read_from = ""

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        closed: dict[tuple[str, str], Trajectory] = {}
        corrections: dict[tuple[str, str], Feedback] = {}
        early: set[tuple[str, str]] = set()
        for record, value in _VALUES.read(batch, effects):
            tenant = tenant_of(record.topic)
            if isinstance(value, Feedback):
                key = (tenant, value.session)
                if key not in closed:
                    early.add(key)
                corrections[key] = value.newest(corrections.get(key))
            else:
                key = (tenant, value.id)
                if key not in closed or value.events >= closed[key].events:
                    closed[key] = value
        await self._load_pending({tenant for tenant, _ in (*closed, *corrections)})
        stored = await self._stored([key for key in corrections if key not in closed])
        # Kept even if the session came right behind it: that one may come again after a crash, and then alone.
        for key in early - stored.keys():
            self._keep(key[0], corrections[key], effects)
        for key, trajectory in (stored | closed).items():
            for feedback in (corrections.get(key), self._pending[key[0]].get(key[1])):
                if feedback is not None:
                    trajectory = replace(trajectory, feedback=feedback.newest(trajectory.feedback))
            self._judge_session(key[0], trajectory, effects)
        return effects

    def forget(self) -> None:
        self._pending.clear()

    async def _stored(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Trajectory]:
        """The sessions that were judged before."""
        ids = {row_id(*key): key for key in keys}
        rows = await self._store.get("judgments", list(ids), "state") if ids else {}
        return {ids[id]: _read_trajectory(row["state"]) for id, row in rows.items()}

    async def _load_pending(self, tenants: set[str]) -> None:
        """Corrections that wait for their session; few, so they are kept in memory and no session has to ask for its own."""
        source = await self._store.resolve("judgments")
        if source != self._read_from:
            self._pending.clear()
            self._read_from = source
        for tenant in tenants - self._pending.keys():
            waiting = [
                _read_feedback(row["state"])
                async for row in self._store.rows("judgments", tenant, "state", label=PENDING)
            ]
            self._pending[tenant] = {feedback.session: feedback for feedback in waiting}

    def _keep(self, tenant: str, feedback: Feedback, effects: Effects) -> None:
        pending = self._pending[tenant]
        pending[feedback.session] = kept = feedback.newest(pending.get(feedback.session))
        effects.rows.setdefault("judgments", []).append(
            {
                "id": f"{row_id(tenant, feedback.session)}#{PENDING}",
                "tenant": tenant,
                "label": PENDING,
                "body": "",
                "text": "",
                "state": kept.to_json().decode(),
            }
        )

    def _judge_session(self, tenant: str, trajectory: Trajectory, effects: Effects) -> None:
        effects.newest = max(effects.newest, trajectory.ended)
        verdict = self._judge.judge(trajectory)
        digest = trajectory.digest()
        # Encoded once: it goes into the judgment and into the store.
        state = digest.to_json()
        judgment = encode({"trajectory": msgspec.Raw(state), "verdict": verdict})
        effects.outgoing.append(Outgoing(tenant, "judgments", trajectory.session, judgment))
        for candidate in distil(Judgment(trajectory=digest, verdict=verdict)):
            effects.outgoing.append(Outgoing(tenant, "candidates", candidate.item_id, candidate.to_json()))
        self._metrics.judgments(verdict.label, verdict.source).inc()
        outline: dict[str, Any] = {
            "session": trajectory.session,
            "part": trajectory.part,
            "events": trajectory.events,
            **asdict(verdict),
        }
        effects.rows.setdefault("judgments", []).append(
            {
                "id": row_id(tenant, trajectory.id),
                "tenant": tenant,
                "task": trajectory.task,
                "agent": trajectory.agent,
                "label": verdict.label,
                "source": verdict.source,
                "body": encode(outline).decode(),
                "text": f"{trajectory.goal} {trajectory.task}",
                "state": state.decode(),
            }
        )
