"""Judge trajectories, and send each session's contributions to memory items (stage 3).

Each session has one row (`models.judge`). Feedback names only an id, so it counts for all principals' sessions under
it, and a separate row keeps it for later ones.

The optional stage 5 asks a model about sessions on which all judges abstained, and about a hashed sample of the others,
to count its errors. It also asks for lessons from sessions that got past a failure. No other stage waits for it. The
commit waits for the answer: a lost one is requested again, and a second changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import asdict

from fleetlore.errors import InvalidEvent
from fleetlore.recall.search import row_id
from fleetlore.wire.principals import id_key, review_key, session_key
from fleetlore.wire.stats import stable_hash
from fleetlore.wire.trajectory import Feedback, Judgment, Trajectory, encode
from models.distil.distiller import distil
from models.judge import JudgeChain, Opinion, SessionState
from models.memory.identities import without_identities
from sinks.metrics import Metrics
from streams.stage.base import Effects, Outgoing, Record, Stage, Store, TopicPartition, Values, dead_letter, yielding
from streams.stage.operators import Erased

if TYPE_CHECKING:
    from models.llm.questions import LanguageModel

__all__ = ["OpinionsStage"]

_Value = Trajectory | Feedback | Opinion
_VALUES: Values[_Value] = Values(_Value)

_PENDING = "pending"

_Key = tuple[str, str]  # tenant and id of the judgment
_Case = tuple[str, str]  # source of a vote, "agreed" or "contradicted"


class _PendingJudgment(NamedTuple):
    tenant: str
    state: SessionState
    trajectory: Trajectory
    only_model: bool


@dataclass(eq=False)
class JudgmentsStage(Stage):
    name = "judgments"
    reads = "trajectories"
    # A batch costs a query, a write and a request. Stage 2 serves the urgent hints.
    linger_seconds = 0.2

    store: Store
    metrics: Metrics
    model: LanguageModel | None = None
    erased: Erased = field(default_factory=Erased)
    judge: JudgeChain = field(default_factory=JudgeChain)
    _collection: str = ""

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        came: defaultdict[_Key, list[_Value]] = defaultdict(list)
        reviews: defaultdict[_Key, list[Feedback]] = defaultdict(list)
        records: dict[_Key, Record] = {}
        for record, value in _VALUES.read(batch, effects):
            tenant = record.tenant
            if self.erased.count and self._is_erased(tenant, value):
                continue
            if isinstance(value, Feedback) and not value.claimed:
                reviews[tenant, value.session].append(value)
                records[tenant, value.session] = record
                continue
            key = tenant, _key_of(value)
            came[key].append(value)
            records[key] = record
        self._collection = await self.store.resolve("judgments")
        states = await self._load_all(reviews, came, records, effects)
        sessions: list[_PendingJudgment] = []
        for key, values in came.items():
            try:
                session = self._merge(*key, records[key], values, states.get(key) or SessionState(), effects)
            except Exception as error:
                effects.dead_letters += [dead_letter(records[key], error, encode(value)) for value in values]
                continue
            if session is not None:
                sessions.append(session)
        async for each in yielding(sessions):
            sent = len(effects.outgoing)
            try:
                self._judge_session(each, effects)
            except Exception as error:
                del effects.outgoing[sent:]
                letter = dead_letter(records[each.tenant, each.trajectory.id], error, encode(each.trajectory))
                effects.dead_letters.append(letter)
        return effects

    def _is_erased(self, tenant: str, value: _Value) -> bool:
        if isinstance(value, Opinion):
            return self.erased.has(tenant, stable_hash(value.session))
        if isinstance(value, Feedback) and not value.claimed:
            names = value.session, id_key(value.session), review_key(value.session)
            return any(self.erased.has(tenant, stable_hash(name)) for name in names)
        agent = value.agent if isinstance(value, Trajectory) else value.by
        return self.erased.holds(tenant, agent, value.session)

    async def _load_all(
        self,
        reviews: Mapping[_Key, list[Feedback]],
        came: defaultdict[_Key, list[_Value]],
        records: dict[_Key, Record],
        effects: Effects,
    ) -> dict[_Key, SessionState]:
        named: dict[_Key, list[_Key]] = {review: [] for review in reviews}
        for key, values in came.items():
            if first := next((each for each in values if isinstance(each, Trajectory) and each.part == 0), None):
                named.setdefault((key[0], first.session), []).append(key)
        keys = [*came, *((tenant, review_key(session)) for tenant, session in named)]
        ids = {row_id(*key): key for key in keys}
        rows = await self.store.get("judgments", list(ids), "state") if ids else {}
        states = {ids[id]: SessionState.from_json(row["state"]) for id, row in rows.items()}
        for review, keys in named.items():
            tenant, session = review
            state = states.get((tenant, review_key(session))) or SessionState()
            if review in reviews:
                for value in reviews[review]:
                    state.merge(value)
                self._keep(tenant, review_key(session), session, state, effects)
                async for row in self.store.rows("judgments", tenant, "state", session=session):
                    known = SessionState.from_json(row["state"])
                    reviewed = known.trajectory
                    if reviewed is not None and reviewed.part == 0 and not self._is_erased(tenant, reviewed):
                        key = tenant, reviewed.id
                        states[key], records[key] = known, records.get(key, records[review])
                        keys.append(key)
            if state.feedback is not None:
                for key in dict.fromkeys(keys):
                    came[key].append(state.feedback)
        return states

    def _merge(
        self, tenant: str, id: str, record: Record, values: list[_Value], state: SessionState, effects: Effects
    ) -> _PendingJudgment | None:
        before = _cases(state)
        _refuse_others(record, state, values, effects)
        fresh = any([state.merge(value) for value in values])
        if state.trajectory is None:
            if state.feedback is not None:
                self._keep(tenant, id, state.feedback.session, state, effects)
            return None
        if fresh:
            state.votes = self.judge.votes(state.trajectory)
            self._recall(state, state.trajectory)
        for case in _cases(state) - before:
            self.metrics.judge_cases.labels(*case).inc()
        only_model = all(isinstance(value, Opinion) for value in values)
        return _PendingJudgment(tenant, state, state.trajectory, only_model)

    def _recall(self, state: SessionState, trajectory: Trajectory) -> None:
        """A replay need not ask a model again."""
        if self.model is None:
            return
        verdict = self.judge.conclude(trajectory, state.votes)
        if self.model.judge.judges(trajectory, verdict.source):
            opinion = self.model.judge.known(trajectory)
            if opinion is not None:
                state.merge(opinion)

    def _keep(self, tenant: str, id: str, session: str, state: SessionState, effects: Effects) -> None:
        row = {"id": row_id(tenant, id), "tenant": tenant, "session": session, "label": _PENDING, "body": ""}
        effects.rows.setdefault(self._collection, []).append(row | {"state": state.to_json().decode()})

    def _judge_session(self, session: _PendingJudgment, effects: Effects) -> None:
        state, trajectory, tenant = session.state, session.trajectory, session.tenant
        effects.newest = max(effects.newest, trajectory.ended)
        verdict = self.judge.conclude(trajectory, state.said)
        digest, encoded = trajectory.digested()
        state.trajectory = digest
        # Send a model's opinion on only if it decides, or stage 5 would read its answer and ask again.
        if not trajectory.is_open and (not session.only_model or verdict.source == "llm"):
            judgment = encode({"trajectory": msgspec.Raw(encoded), "verdict": verdict})
            effects.outgoing.append(Outgoing(tenant, "judgments", trajectory.session, judgment))
        judged = Judgment(trajectory=digest, verdict=verdict)
        candidates = without_identities(distil(judged), digest)
        if self.model is not None:
            candidates += self.model.teacher.known(judged)
        for contribution in state.teach(candidates):
            effects.outgoing.append(Outgoing(tenant, "candidates", contribution.item_id, contribution.to_json()))
        if trajectory.is_open:
            self._keep(tenant, trajectory.id, trajectory.session, state, effects)
            return
        self.metrics.judgments.labels(verdict.label, verdict.source).inc()
        outline = {"session": trajectory.session, "part": trajectory.part, "events": trajectory.events}
        effects.rows.setdefault(self._collection, []).append(
            {
                "id": row_id(tenant, trajectory.id),
                "tenant": tenant,
                "session": trajectory.session,
                "task": trajectory.task,
                "agent": trajectory.agent,
                "label": verdict.label,
                "source": verdict.source,
                "body": encode(outline | asdict(verdict)).decode(),
                "state": state.to_json(encoded).decode(),
            }
        )


def _key_of(value: _Value) -> str:
    if isinstance(value, Trajectory):
        return value.id
    return value.session if isinstance(value, Opinion) else session_key(value.by, value.session)


def _refuse_others(record: Record, state: SessionState, values: Sequence[_Value], effects: Effects) -> None:
    sessions = [value for value in (state.trajectory, *values) if isinstance(value, Trajectory)]
    first = max(sessions, key=lambda each: each.claim, default=None)
    for each in sessions:
        if first is not None and each.claim != first.claim and not each.is_open:
            error = InvalidEvent(
                "reused_session", f"another session {each.session!r} of {first.agent!r} began before this one"
            )
            effects.dead_letters.append(dead_letter(record, error, each.to_json()))


def _cases(state: SessionState) -> set[_Case]:
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


_JUDGMENTS: Values[Judgment] = Values(Judgment)

_MOST_WAITING, _ASKED_AT_ONCE = 256, 4
_FETCH_SECONDS = 0.05


class _Question(NamedTuple):
    tp: TopicPartition
    offset: int
    answer: asyncio.Task[list[Outgoing]]


class OpinionsStage(Stage):
    name = "opinions"
    reads = "judgments"

    def __init__(self, model: LanguageModel, erased: Erased) -> None:
        self._judge, self._teacher = model.judge, model.teacher
        self._erased = erased
        self._slots = asyncio.Semaphore(_ASKED_AT_ONCE)
        self._questions: list[_Question] = []

    @property
    def holds(self) -> bool:
        return bool(self._questions)

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        for record, judgment in _JUDGMENTS.read(batch, effects):
            tenant, trajectory = record.tenant, judgment.trajectory
            if self._erased.holds(tenant, trajectory.agent, trajectory.session):
                continue
            effects.newest = max(effects.newest, trajectory.ended)
            judges, teaches = self._judge.judges(trajectory, judgment.verdict.source), self._teacher.teaches(judgment)
            if judges or teaches:
                answer = asyncio.create_task(self._ask(tenant, judgment, judges=judges, teaches=teaches))
                self._questions.append(_Question(record.tp, record.offset, answer))
        await self._fetch(effects, wait=not batch)
        while len(self._questions) > _MOST_WAITING:
            await self._fetch(effects, wait=True)
        return effects

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        return min([question.offset for question in self._questions if question.tp == tp] + [next_offset])

    def close(self) -> None:
        for question in self._questions:
            question.answer.cancel()

    async def _ask(self, tenant: str, judgment: Judgment, *, judges: bool, teaches: bool) -> list[Outgoing]:
        trajectory = judgment.trajectory
        async with self._slots:
            opinion = await self._judge.ask(trajectory) if judges else None
            lessons = await self._teacher.ask(judgment) if teaches else []
        found = [Outgoing(tenant, "candidates", lesson.item_id, lesson.to_json()) for lesson in lessons]
        if opinion is not None:
            found.append(Outgoing(tenant, "trajectories", trajectory.session, opinion.to_json()))
        return found

    async def _fetch(self, effects: Effects, wait: bool) -> None:
        if wait and self._questions:
            tasks = [question.answer for question in self._questions]
            await asyncio.wait(tasks, timeout=_FETCH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for question in self._questions:
            if question.answer.done():
                effects.outgoing += question.answer.result()
        self._questions = [question for question in self._questions if not question.answer.done()]
