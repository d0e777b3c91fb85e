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

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import asdict

from fleetlore.errors import InvalidEvent
from fleetlore.wire.topics import tenant_of
from fleetlore.wire.trajectory import Feedback, Judgment, Trajectory, Verdict, encode
from models.distil.distiller import distil
from models.judge.chain import JudgeChain
from models.judge.record import measurable, tool_family
from models.judge.session_state import Notes, Opinion, SessionState
from models.memory.candidate import Candidate, Shown, shown_items
from models.memory.identities import without_identities
from sinks.metrics import Metrics
from sinks.milvus import row_id
from streams.stage.base import Effects, Outgoing, Record, Stage, Store, TopicPartition, Values, dead_letter, yielding
from streams.stage.erased import Erased, Forget
from streams.stages.s3_judgments.judge_records import JudgeRecords, RecordKey

if TYPE_CHECKING:
    from streams.stages.s3_judgments.language_model import LanguageModel

__all__ = ["JudgmentsStage"]

_Value = Trajectory | Feedback | Opinion | Notes
_VALUES: Values[_Value | Forget] = Values(_Value, Forget)

# Label of a row that holds a correction whose session has not been closed yet.
_PENDING = "pending"


Key = tuple[str, str]  # tenant, id of the judgment


class _PendingJudgment(NamedTuple):
    """A session that is to be judged.

    Attributes:
        before: the votes on its earlier state.
        measured: of the votes before and now, those that can be measured; most sessions have only their environment's.
        place: its tenant, partition and family of tools.
        notes: a model's notes of it.
        only_model: only a model's opinions and notes have arrived.
    """

    state: SessionState
    trajectory: Trajectory
    before: tuple[Verdict, ...]
    measured: list[Verdict]
    place: tuple[str, int, str]
    notes: list[Notes]
    only_model: bool

    def records(self) -> Iterator[tuple[RecordKey, str]]:
        """Yield the judge records of its voters, each with the source of its judge."""
        tenant, partition, family = self.place
        for vote in self.measured:
            yield RecordKey(tenant, partition, vote.version, family), vote.source


class JudgmentsStage(Stage):
    """See the module."""

    name = "judgments"
    reads = "trajectories"
    # Each batch costs a query and a write of Milvus and a request of the broker; hints against a new failure come from
    # stage 2.
    linger_seconds = 0.2

    def __init__(
        self,
        store: Store,
        judge: JudgeChain,
        metrics: Metrics,
        model: LanguageModel | None = None,
        erased: Erased | None = None,
    ) -> None:
        self._store = store
        self._erased = erased or Erased()
        self._judge = judge
        self._metrics = metrics
        self._model = model
        self._records = JudgeRecords(store, metrics)
        self._collection = ""  # what `judgments` stands for in this batch

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        came: dict[Key, list[_Value]] = {}
        records: dict[Key, Record] = {}
        forgets: dict[TopicPartition, set[int]] = {}
        for record, value in _VALUES.read(batch, effects):
            tenant = tenant_of(record.topic)
            if isinstance(value, Forget):
                self._erased.add_sessions(tenant, value.sessions)
                forgets.setdefault(record.tp, set()).update(value.sessions)
                continue
            if self._erased.count and self._erased.holds(tenant, value.session):
                continue
            key = tenant, value.id if isinstance(value, Trajectory) else value.session
            came.setdefault(key, []).append(value)
            records[key] = record
        self._collection = await self._store.resolve("judgments")
        if forgets:  # which may have come behind what they are about
            came = {key: values for key, values in came.items() if not self._erased.holds(*key)}
        states = await self._load(list(came))
        sessions: list[_PendingJudgment] = []
        for key, values in came.items():
            session = self._merge(*key, records[key], values, states.get(key) or SessionState(), effects)
            if session is not None:
                sessions.append(session)
        for tp, erased in forgets.items():
            await self._records.discard(self._collection, tenant_of(tp.topic), tp.partition, erased)
        measured = [each for each in sessions if each.measured]
        if measured:
            await self._records.load(self._collection, (each for session in measured for each in session.records()))
            for each in measured:
                self._records.note(each.place, each.trajectory, each.state.said, each.before)
        if measured or forgets:
            # Before the sessions' own rows, which say that their case was made.
            effects.rows.setdefault(self._collection, [])[:0] = self._records.take_rows()
        counted = [
            self._records.counted(each.place, each.state.said) if each.measured else each.state.said
            for each in sessions
        ]
        async for each, votes in yielding(list(zip(sessions, counted, strict=True))):
            self._judge_session(each, votes, effects)
        return effects

    def forget(self) -> None:
        self._records.forget()

    async def _load(self, keys: Sequence[Key]) -> dict[Key, SessionState]:
        """Read the states of sessions that are known."""
        ids = {row_id(*key): key for key in keys}
        rows = await self._store.get("judgments", list(ids), "state") if ids else {}
        return {ids[id]: SessionState.from_json(row["state"]) for id, row in rows.items()}

    def _merge(
        self, tenant: str, id: str, record: Record, values: list[_Value], state: SessionState, effects: Effects
    ) -> _PendingJudgment | None:
        """Merge values into a session's state; return the session, or None where its trajectory has not arrived."""
        before = state.said
        _refuse_others(record, state, values, effects)
        fresh = any([state.merge(value) for value in values if not isinstance(value, Notes)])
        if state.trajectory is None:
            if state.feedback is not None:
                self._keep(tenant, id, state, effects)
            return None
        if fresh:
            state.votes = self._judge.votes(state.trajectory)
            self._recall(state, state.trajectory)
        measured = measurable(state.trajectory, (*before, *state.said))
        place = tenant, record.partition, tool_family(state.trajectory) if measured else ""
        notes = [value for value in values if isinstance(value, Notes)]
        only_model = all(isinstance(value, Notes | Opinion) for value in values)
        return _PendingJudgment(state, state.trajectory, before, measured, place, notes, only_model)

    def _recall(self, state: SessionState, trajectory: Trajectory) -> None:
        """Merge a model's stored opinion of the same session: a replay does not ask it again."""
        if self._model is None:
            return
        verdict = self._judge.conclude(trajectory, state.votes)
        if self._model.judges(trajectory, verdict.source):
            opinion = self._model.judge.known(trajectory)
            if opinion is not None:
                state.merge(opinion)

    def _keep(self, tenant: str, id: str, state: SessionState, effects: Effects) -> None:
        """Store a correction until its session arrives."""
        effects.rows.setdefault(self._collection, []).append(
            {
                "id": row_id(tenant, id),
                "tenant": tenant,
                "label": _PENDING,
                "body": "",
                "state": state.to_json().decode(),
            }
        )

    def _judge_session(self, session: _PendingJudgment, votes: tuple[Verdict, ...], effects: Effects) -> None:
        state, trajectory, tenant = session.state, session.trajectory, session.place[0]
        effects.newest = max(effects.newest, trajectory.ended)
        verdict = self._judge.conclude(trajectory, votes)
        # Encoded once, for the judgment and for the store.
        digest, encoded = trajectory.digested()
        state.trajectory = digest
        # A model's opinion goes on only if it counts: else the stage that asks would read its own answer and ask again.
        if not session.only_model or (verdict.source == "llm" and not session.notes):
            judgment = encode({"trajectory": msgspec.Raw(encoded), "verdict": verdict})
            # One worker tells sessions of like goals apart, where a model does.
            place = trajectory.session if self._model is None else self._model.place(trajectory)
            effects.outgoing.append(Outgoing(tenant, "judgments", place, judgment))
        kept = Judgment(trajectory=digest, verdict=verdict)
        candidates = distil(kept)
        known = self._model.distiller.known(kept) if self._model is not None and self._model.notes(kept) else None
        for notes in session.notes if known is None else (known,):
            candidates += state.note(notes, verdict)
        contributions: list[Candidate | Shown] = [
            *state.teach(without_identities(candidates, digest), verdict),
            *shown_items(digest),
        ]
        for contribution in contributions:
            effects.outgoing.append(Outgoing(tenant, "candidates", contribution.item_id, contribution.to_json()))
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
    """Make dead letters of other sessions under the same id than the one that counts: the one that began first."""
    sessions = [value for value in (state.trajectory, *values) if isinstance(value, Trajectory)]
    first = max(sessions, key=lambda each: each.claim, default=None)
    for each in sessions:
        if first is not None and each.claim != first.claim:
            reason = "reused_session" if each.agent == first.agent else "foreign_agent"
            error = InvalidEvent(
                reason, f"session {each.session!r} of {first.agent!r} began before that of {each.agent!r}"
            )
            effects.dead_letters.append(dead_letter(record, error, each.to_json()))
