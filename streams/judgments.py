"""Stage 3: trajectories → judgments, in Milvus and on the topic `judgments`.

A later correction (feedback) may arrive before or after the trajectory that it is about; whichever comes second finds the
other one in the store, so the verdict does not depend on the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson

from fleetlore.topics import tenant_of
from fleetlore.trajectory import Feedback, Trajectory
from models.judge import JudgeChain
from sinks.metrics import Metrics
from sinks.milvus import row_id
from streams.decode import decode_values
from streams.stage import Effects, Outgoing, Record, Stage
from streams.store import Store

# Label of a row that holds a correction whose session has not been closed yet.
PENDING = "pending"


@dataclass(slots=True)
class Case:
    """What is known of one session: what happened and what was said of it later."""

    trajectory: Trajectory | None = None
    feedback: Feedback | None = None

    def add(self, value: Trajectory | Feedback) -> None:
        """Merge: of corrections the newest counts; a part of a session never replaces the whole."""
        if isinstance(value, Feedback):
            if self.feedback is None or (value.time, value.by) >= (self.feedback.time, self.feedback.by):
                self.feedback = value
        elif self.trajectory is None or value.events >= self.trajectory.events:
            self.trajectory = value


class JudgmentsStage(Stage):
    """See the module."""

    name = "judgments"
    reads = "trajectories"

    def __init__(self, store: Store, judge: JudgeChain, metrics: Metrics) -> None:
        self._store = store
        self._judge = judge
        self._metrics = metrics

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        arrived = [(tenant_of(record.topic), value) for record, value in decode_values(batch, _parse, effects)]
        ids = [row_id(tenant, _id(value)) for tenant, value in arrived]
        stored = await self._store.get("judgments", list(dict.fromkeys(ids)), "state")
        cases: dict[str, tuple[str, Case]] = {}
        for id, (tenant, value) in zip(ids, arrived, strict=True):
            if id not in cases:
                cases[id] = tenant, _restore(stored[id]["state"]) if id in stored else Case()
            cases[id][1].add(value)
        for id, (tenant, case) in cases.items():
            self._judge_case(id, tenant, case, effects)
        return effects

    def _judge_case(self, id: str, tenant: str, case: Case, effects: Effects) -> None:
        columns: dict[str, Any] = {"id": id, "tenant": tenant, "label": PENDING, "body": "", "text": ""}
        kept: orjson.Fragment | None = None
        if case.trajectory is not None:
            trajectory = replace(case.trajectory, feedback=case.feedback)
            effects.newest = max(effects.newest, trajectory.ended)
            verdict = self._judge.judge(trajectory)
            # Encoded once: the digest goes into the judgment and into the state.
            kept = orjson.Fragment(trajectory.digest().to_json())
            judgment = orjson.dumps({"trajectory": kept, "verdict": verdict})
            effects.outgoing.append(Outgoing(tenant, "judgments", trajectory.session, judgment))
            self._metrics.judgments(verdict.label, verdict.source).inc()
            outline = {"session": trajectory.session, "part": trajectory.part, "events": trajectory.events}
            columns |= {
                "task": trajectory.task,
                "agent": trajectory.agent,
                "label": verdict.label,
                "source": verdict.source,
                "body": orjson.dumps(outline | asdict(verdict)).decode(),
                "text": f"{trajectory.goal} {trajectory.task}",
            }
        columns["state"] = orjson.dumps({"trajectory": kept, "feedback": case.feedback}).decode()
        effects.rows.setdefault("judgments", []).append(columns)


def _parse(value: dict[str, Any]) -> Trajectory | Feedback:
    return Feedback(**value) if "by" in value else Trajectory.from_dict(value)


def _id(value: Trajectory | Feedback) -> str:
    return value.session if isinstance(value, Feedback) else value.id


def _restore(state: str) -> Case:
    fields = orjson.loads(state)
    trajectory, feedback = fields["trajectory"], fields["feedback"]
    return Case(
        Trajectory.from_dict(trajectory) if trajectory else None,
        Feedback(**feedback) if feedback else None,
    )
