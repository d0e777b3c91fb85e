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

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from fleetlore.errors import InvalidEvent
from fleetlore.wire.topics import tenant_of
from fleetlore.wire.trajectory import Feedback, Judgment, Trajectory, Verdict, encode
from models.distil.distiller import distil
from models.judge.chain import JudgeChain
from models.judge.record import JudgeRecord, cases_of, measurable, tool_family
from models.judge.session_state import Opinion, SessionState
from models.memory.candidate import Candidate, Shown, shown_items
from models.memory.identities import without_identities
from sinks.metrics import Metrics
from sinks.milvus import row_id
from streams.stage.base import (
    Effects,
    ListedStore,
    Outgoing,
    Record,
    Stage,
    TopicPartition,
    Values,
    dead_letter,
    yielding,
)
from streams.stage.merging_stage import BoundedCache
from streams.stage.operators import Erased, Forget

if TYPE_CHECKING:
    from models.llm.judge import LlmJudge

__all__ = ["LABEL", "JudgmentsStage"]

_Value = Trajectory | Feedback | Opinion
_VALUES: Values[_Value | Forget] = Values(_Value, Forget)

# Labels of the row of a judge's record, and of one that holds a correction whose session has not been closed yet.
LABEL, _PENDING = "judge", "pending"

_Key = tuple[str, str]  # tenant, id of the judgment
_Place = tuple[str, int, str]  # tenant, partition and family of tools of a session

# Tool names make the families, so a client that invents names invents records: this bounds those in memory, in bytes.
_MOST_BYTES = 64 * 2**20
# Of a record beside its cases, and of a case: estimates from above.
RECORD_BYTES, CASE_BYTES = 1_000, 480


class _PendingJudgment(NamedTuple):
    """A session that is to be judged.

    Attributes:
        before: the votes on its earlier state.
        measured: of the votes before and now, those that can be measured; most sessions have only their environment's.
        place: its tenant, partition and family of tools.
        only_model: only a model's opinions have arrived.
    """

    state: SessionState
    trajectory: Trajectory
    before: tuple[Verdict, ...]
    measured: list[Verdict]
    place: _Place
    only_model: bool

    def records(self) -> Iterator[tuple[RecordKey, str]]:
        """Yield the judge records of its voters, each with the source of its judge."""
        tenant, partition, family = self.place
        for vote in self.measured:
            yield RecordKey(tenant, partition, vote.version, family), vote.source


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
        self._records = JudgeRecords(store, metrics)
        self._collection = ""  # what `judgments` stands for in this batch

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        came: dict[_Key, list[_Value]] = {}
        records: dict[_Key, Record] = {}
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

    async def _load(self, keys: Sequence[_Key]) -> dict[_Key, SessionState]:
        ids = {row_id(*key): key for key in keys}
        rows = await self._store.get("judgments", list(ids), "state") if ids else {}
        return {ids[id]: SessionState.from_json(row["state"]) for id, row in rows.items()}

    def _merge(
        self, tenant: str, id: str, record: Record, values: list[_Value], state: SessionState, effects: Effects
    ) -> _PendingJudgment | None:
        """Merge values into a session's state; return the session, or None where its trajectory has not arrived."""
        before = state.said
        _refuse_others(record, state, values, effects)
        fresh = any([state.merge(value) for value in values])
        if state.trajectory is None:
            if state.feedback is not None:
                self._keep(tenant, id, state, effects)
            return None
        if fresh:
            state.votes = self._judge.votes(state.trajectory)
            self._recall(state, state.trajectory)
        measured = measurable(state.trajectory, (*before, *state.said))
        place = tenant, record.partition, tool_family(state.trajectory) if measured else ""
        only_model = all(isinstance(value, Opinion) for value in values)
        return _PendingJudgment(state, state.trajectory, before, measured, place, only_model)

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

    def _judge_session(self, session: _PendingJudgment, votes: tuple[Verdict, ...], effects: Effects) -> None:
        state, trajectory, tenant = session.state, session.trajectory, session.place[0]
        effects.newest = max(effects.newest, trajectory.ended)
        verdict = self._judge.conclude(trajectory, votes)
        # Encoded once, for the judgment and for the store.
        digest, encoded = trajectory.digested()
        state.trajectory = digest
        # A model's opinion goes on only if it counts: else the stage that asks would read its own answer and ask again.
        if not session.only_model or verdict.source == "llm":
            judgment = encode({"trajectory": msgspec.Raw(encoded), "verdict": verdict})
            effects.outgoing.append(Outgoing(tenant, "judgments", trajectory.session, judgment))
        candidates = distil(Judgment(trajectory=digest, verdict=verdict))
        contributions: list[Candidate | Shown] = [
            *state.teach(without_identities(candidates, digest)),
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


class RecordKey(NamedTuple):
    """The key of a record: a tenant's partition, a version of a judge and a family of tools."""

    tenant: str
    partition: int
    version: str
    family: str

    @property
    def row(self) -> str:
        """Id of its row. A session's row begins with the tenant and a slash, and no tenant's name holds a bar."""
        return "|".join((self.tenant, str(self.partition), self.version, self.family))


class JudgeRecords:
    """Counts how often each judge was right (`models.judge.record`), in rows beside the judgments.

    Each partition of the trajectories has its own records, written by its owner alone; a reader merges them. There are
    few, so they stay in memory once they were read.
    """

    def __init__(self, store: ListedStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._records: BoundedCache[RecordKey, JudgeRecord] = BoundedCache(_weigh, _MOST_BYTES)
        self._used: dict[RecordKey, JudgeRecord] = {}  # those of the batch
        self._changed: dict[RecordKey, JudgeRecord] = {}
        self._collection = ""

    async def load(self, collection: str, keys: Iterable[tuple[RecordKey, str]]) -> None:
        """Load the records of these (key, source of its judge) into memory.

        Args:
            collection: what `judgments` stands for in this batch.

        Raises:
            StoreUnavailable: nothing has changed then.
        """
        if collection != self._collection:
            # A backfill has taken the name over: the records in memory are of another collection.
            self.forget()
            self._collection = collection
        wanted = dict(keys)
        self._records.trim()
        self._used = {key: record for key in wanted if (record := self._records.get(key)) is not None}
        unknown = {key.row: key for key in wanted if key not in self._used}
        rows = await self._store.get("judgments", list(unknown), "state") if unknown else {}
        for row, key in unknown.items():
            known = rows.get(row)
            self._used[key] = (
                JudgeRecord.from_json(known["state"]) if known else JudgeRecord(wanted[key], key.version, key.family)
            )
        for key, record in self._used.items():
            self._records.put(key, record)

    async def discard(self, collection: str, tenant: str, partition: int, sessions: Collection[int]) -> None:
        """Take sessions out of all records of a tenant's partition.

        Raises:
            StoreUnavailable: nothing has changed then.
        """
        rows = {row["id"]: row["state"] async for row in self._store.rows("judgments", tenant, "state", label=LABEL)}
        stored = [JudgeRecord.from_json(state) for state in rows.values()]
        found = [(RecordKey(tenant, partition, each.version, each.family), each.source) for each in stored]
        await self.load(collection, [(key, source) for key, source in found if key.row in rows])
        for key, record in self._records.items():
            if (key.tenant, key.partition) == (tenant, partition) and record.discard(sessions):
                self._changed[key] = record

    def note(self, place: _Place, trajectory: Trajectory, votes: Iterable[Verdict], before: Iterable[Verdict]) -> None:
        """Add a session's evidence on its judges.

        Args:
            place: tenant, partition and family of the session.
            votes, before: the votes on it now, and before it was judged again.
        """
        tenant, partition, family = place
        for vote, case in cases_of(trajectory, tuple(votes), tuple(before)):
            key = RecordKey(tenant, partition, vote.version, family)
            record = self._used[key]
            if record.add(trajectory.id, case):
                self._changed[key] = record
                if case.truth:
                    self._metrics.judge_cases(
                        vote.source, "agreed" if case.said == case.truth else "contradicted"
                    ).inc()

    def take_rows(self) -> list[dict[str, Any]]:
        """Return the rows of the records that have changed since the last call."""
        changed, self._changed = self._changed, {}
        return [
            {
                "id": key.row,
                "tenant": key.tenant,
                "label": LABEL,
                "source": record.source,
                "body": "",
                "state": record.to_json().decode(),
            }
            for key, record in changed.items()
        ]

    def counted(self, place: _Place, votes: Iterable[Verdict]) -> tuple[Verdict, ...]:
        """Return the votes that count.

        Those of a judge that was contradicted too often are left out. A language model's are as sure as its record. The
        environment's own always count.
        """
        tenant, partition, family = place
        counted = []
        for vote in votes:
            if vote.source == "reward":
                counted.append(vote)
                continue
            record = self._used[RecordKey(tenant, partition, vote.version, family)]
            precision = record.precision(vote.label) if vote.source == "llm" else None
            if vote.label in record.silenced or (precision is not None and precision <= 0.5):
                self._metrics.judge_silenced(vote.source).inc()
            elif precision is None:
                counted.append(vote)
            else:
                counted.append(replace(vote, probability=precision if vote.label == "success" else 1 - precision))
        return tuple(counted)

    def forget(self) -> None:
        self._records.clear()
        self._used.clear()
        self._changed.clear()


def _weigh(record: JudgeRecord) -> int:
    return RECORD_BYTES + CASE_BYTES * len(record.cases)
