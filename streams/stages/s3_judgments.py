"""Judge trajectories, and hand on what each session contributes to memory items (stage 3).

Judgments go to Milvus and to the topic `judgments`.

The contributions (`candidates`) are keyed by item, all else here by session: the topic brings the contributions to one
item together on one partition, where a single writer merges them.

A session has one row. A trajectory, the same with more events, and a correction before or after it are merged into that
row and judged anew; what the session taught before and no longer teaches is withdrawn. So every session is read before
it is judged: one query a batch, at a third of the cost of writing the rows. To know the ids of all rows instead would
take a scan at each start, whose time grows with their square.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import asdict

from fleetlore.errors import InvalidEvent
from fleetlore.wire.topics import tenant_of
from fleetlore.wire.trajectory import Feedback, Judgment, Trajectory, encode
from models.distil.distiller import distil
from models.judge.chain import JudgeChain
from models.judge.session_state import Opinion, SessionState
from models.memory.identities import without_identities
from sinks.metrics import Metrics
from sinks.milvus import row_id
from streams.stage.base import Effects, ListedStore, Outgoing, Record, Stage, Values, dead_letter, yielding
from streams.stage.operators import Erased, Forget

if TYPE_CHECKING:
    from models.llm.judge import LlmJudge

__all__ = ["JudgmentsStage"]

_Value = Trajectory | Feedback | Opinion
_VALUES: Values[_Value | Forget] = Values(_Value, Forget)

# The label of a row of a session that has not been closed yet.
_PENDING = "pending"

_Key = tuple[str, str]  # tenant, id of the judgment
_Case = tuple[str, str]  # source of a vote, "agreed" or "contradicted"


class _PendingJudgment(NamedTuple):
    """A session that is to be judged.

    Attributes:
        only_model: only a model's opinions have arrived.
    """

    tenant: str
    state: SessionState
    trajectory: Trajectory
    only_model: bool


class JudgmentsStage(Stage):
    name = "judgments"
    reads = "trajectories"
    # Each batch costs a query and a write of Milvus and a request of the broker; hints against a new failure come from
    # stage 2.
    linger_seconds = 0.2

    def __init__(
        self,
        store: ListedStore,
        judge: JudgeChain,
        metrics: Metrics,
        model: LlmJudge | None = None,
        erased: Erased | None = None,
    ) -> None:
        self._store = store
        self._erased = erased or Erased()
        self._judge = judge
        self._metrics = metrics
        self._model = model
        self._collection = ""  # what `judgments` stands for in this batch

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        came: dict[_Key, list[_Value]] = {}
        records: dict[_Key, Record] = {}
        for record, value in _VALUES.read(batch, effects):
            tenant = tenant_of(record.topic)
            if isinstance(value, Forget):  # releases with records of judges sent these on this topic too
                self._erased.add_sessions(tenant, value.sessions)
                continue
            key = tenant, value.id if isinstance(value, Trajectory) else value.session
            came.setdefault(key, []).append(value)
            records[key] = record
        self._collection = await self._store.resolve("judgments")
        if self._erased.count:
            came = {
                (tenant, id): values
                for (tenant, id), values in came.items()
                if not any(self._erased.holds(tenant, each) for each in (id, values[0].session))
            }
        states = await self._load(list(came))
        sessions: list[_PendingJudgment] = []
        for key, values in came.items():
            session = self._merge(*key, records[key], values, states.get(key) or SessionState(), effects)
            if session is not None:
                sessions.append(session)
        async for each in yielding(sessions):
            self._judge_session(each, effects)
        return effects

    async def _load(self, keys: Sequence[_Key]) -> dict[_Key, SessionState]:
        ids = {row_id(*key): key for key in keys}
        rows = await self._store.get("judgments", list(ids), "state") if ids else {}
        return {ids[id]: SessionState.from_json(row["state"]) for id, row in rows.items()}

    def _merge(
        self, tenant: str, id: str, record: Record, values: list[_Value], state: SessionState, effects: Effects
    ) -> _PendingJudgment | None:
        """Merge values into a session's state; return the session, or None where its trajectory has not arrived."""
        before = _cases(state)
        _refuse_others(record, state, values, effects)
        fresh = any([state.merge(value) for value in values])
        if state.trajectory is None:
            if state.feedback is not None:
                self._keep(tenant, id, state, effects)
            return None
        if fresh:
            state.votes = self._judge.votes(state.trajectory)
            self._recall(state, state.trajectory)
        for case in _cases(state) - before:
            self._metrics.judge_cases(*case).inc()
        only_model = all(isinstance(value, Opinion) for value in values)
        return _PendingJudgment(tenant, state, state.trajectory, only_model)

    def _recall(self, state: SessionState, trajectory: Trajectory) -> None:
        """Merge a model's stored opinion of the same session: a replay does not ask it again."""
        if self._model is None:
            return
        verdict = self._judge.conclude(trajectory, state.votes)
        if self._model.judges(trajectory, verdict.source):
            opinion = self._model.known(trajectory)
            if opinion is not None:
                state.merge(opinion)

    def _keep(self, tenant: str, id: str, state: SessionState, effects: Effects) -> None:
        effects.rows.setdefault(self._collection, []).append(
            {
                "id": row_id(tenant, id),
                "tenant": tenant,
                "label": _PENDING,
                "body": "",
                "state": state.to_json().decode(),
            }
        )

    def _judge_session(self, session: _PendingJudgment, effects: Effects) -> None:
        state, trajectory, tenant = session.state, session.trajectory, session.tenant
        effects.newest = max(effects.newest, trajectory.ended)
        verdict = self._judge.conclude(trajectory, state.said)
        # Encoded once, for the judgment and for the store.
        digest, encoded = trajectory.digested()
        state.trajectory = digest
        # A model's opinion goes on only if it counts: else the stage that asks would read its own answer and ask again.
        if not trajectory.is_open and (not session.only_model or verdict.source == "llm"):
            judgment = encode({"trajectory": msgspec.Raw(encoded), "verdict": verdict})
            effects.outgoing.append(Outgoing(tenant, "judgments", trajectory.session, judgment))
        candidates = distil(Judgment(trajectory=digest, verdict=verdict))
        for contribution in state.teach(without_identities(candidates, digest)):
            effects.outgoing.append(Outgoing(tenant, "candidates", contribution.item_id, contribution.to_json()))
        if trajectory.is_open:
            self._keep(tenant, trajectory.id, state, effects)
            return
        self._metrics.judgments(verdict.label, verdict.source).inc()
        outline: dict[str, Any] = {
            "session": trajectory.session,
            "part": trajectory.part,
            "events": trajectory.events,
            **asdict(verdict),
        }
        effects.rows.setdefault(self._collection, []).append(
            {
                "id": row_id(tenant, trajectory.id),
                "tenant": tenant,
                "task": trajectory.task,
                "agent": trajectory.agent,
                "label": verdict.label,
                "source": verdict.source,
                "body": encode(outline).decode(),
                "state": state.to_json(encoded).decode(),
            }
        )


def _refuse_others(record: Record, state: SessionState, values: Sequence[_Value], effects: Effects) -> None:
    """Make dead letters of other sessions under the same id than the one that counts: the one that began first.

    One that is open becomes a dead letter once it is closed.
    """
    sessions = [value for value in (state.trajectory, *values) if isinstance(value, Trajectory)]
    first = max(sessions, key=lambda each: each.claim, default=None)
    for each in sessions:
        if first is not None and each.claim != first.claim and not each.is_open:
            reason = "reused_session" if each.agent == first.agent else "foreign_agent"
            error = InvalidEvent(
                reason, f"session {each.session!r} of {first.agent!r} began before that of {each.agent!r}"
            )
            effects.dead_letters.append(dead_letter(record, error, each.to_json()))


def _cases(state: SessionState) -> set[_Case]:
    """Compare the votes on a session with its feedback, or else with the reward of its environment."""
    if state.trajectory is None:
        return set()
    correction = state.trajectory.correction
    truth = correction or next((vote for vote in state.said if vote.source == "reward"), None)
    if truth is None:
        return set()
    return {
        (vote.source, "agreed" if vote.label == truth.label else "contradicted")
        for vote in state.said
        if vote.source != "reward" or correction is not None
    }
