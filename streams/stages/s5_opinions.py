"""Ask a model, where one is set, about judgments, and send its opinions and notes back to `trajectories` (stage 5).

It judges the sessions on which all other judges abstained, and a small share of those with a better judge, so that its
own errors are counted (`models.judge.record`). It distils a share, all by default, of the sessions that surely failed,
each beside one that succeeded at a like goal where there is one. The shares are drawn by a hash of the session, so they
are the same sessions everywhere.

A model takes seconds, so it is not asked where sessions are judged. Its answer is a value of its own, like feedback,
that the judging stage merges into the session's row whenever it comes. The commit waits for it: a lost answer is asked
for again, a second one changes nothing.

A question without an answer (budget, time-out, refusal) is not asked again: the session stays as it was judged.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fleetlore.config import Settings
from fleetlore.fingerprint.literals import masked_text
from fleetlore.stats.hashing import drawn
from fleetlore.wire.topics import tenant_of
from fleetlore.wire.trajectory import Judgment, Trajectory
from fleetlore.words import words
from models.cases import telling
from models.judge.session_state import Notes, Opinion, notable
from models.llm.client import Answers, Client
from models.llm.distiller import LlmDistiller
from models.llm.judge import LlmJudge
from sinks.metrics import Metrics
from streams.stage.base import Effects, Outgoing, Record, Stage, TopicPartition, Values
from streams.stage.operators import Distrusted, Operators

__all__ = ["LanguageModel", "OpinionsStage"]

_JUDGMENTS: Values[Judgment] = Values(Judgment)

# Open questions; with more of them the next batch waits.
_MOST_WAITING = 256
# How long an empty batch waits for an answer.
_FETCH_SECONDS = 0.05
_MOST_PLACES = 256
_MOST_OF_A_SIDE = 8
# Share of all their words that two goals hold both, from which they are like one another.
_LIKE = 0.5

_Answer = Sequence[Outgoing]


class _Question(NamedTuple):
    """A question, and where its judgment lies in the log."""

    tp: TopicPartition
    offset: int
    answer: asyncio.Task[_Answer]


class OpinionsStage(Stage):
    name = "opinions"
    reads = "judgments"

    def __init__(self, model: LanguageModel, concurrency: int, operators: Operators) -> None:
        self._model = model
        self._erased, self._erased_seen = operators.erased, 0
        self._slots = asyncio.Semaphore(concurrency)
        self._questions: list[_Question] = []
        self._like = _LikeSessions(operators.distrusted)

    @property
    def holds(self) -> bool:
        return bool(self._questions)

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        # A session's last question of the batch is the one with the nearest that succeeded.
        failed: dict[tuple[str, str], tuple[Record, Judgment, Judgment | None]] = {}
        if self._erased_seen != self._erased.count:
            self._erased_seen = self._erased.count
            self._like.forget()
        for record, judgment in _JUDGMENTS.read(batch, effects):
            tenant, session = tenant_of(record.topic), judgment.trajectory.session
            if self._erased.holds(tenant, session):
                continue
            effects.newest = max(effects.newest, judgment.trajectory.ended)
            if self._model.judges(judgment.trajectory, judgment.verdict.source):
                self._put(record, _back(tenant, session, self._model.judge.ask(judgment.trajectory)))
            if self._model.distils:
                for each, helped in self._like.add(tenant, judgment):
                    failed[tenant, each.trajectory.id] = record, each, helped
        for (tenant, _), (record, each, helped) in failed.items():
            if self._model.notes(each):
                asking = self._model.distiller.ask(each, helped)
                self._put(record, _back(tenant, each.trajectory.session, asking))
        await self._fetch(effects, wait=not batch)
        while len(self._questions) > _MOST_WAITING:
            await self._fetch(effects, wait=True)
        return effects

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        return min([question.offset for question in self._questions if question.tp == tp] + [next_offset])

    def forget(self) -> None:
        for question in self._questions:
            question.answer.cancel()
        self._questions.clear()
        self._like.forget()

    def _put(self, record: Record, asking: Coroutine[Any, Any, _Answer]) -> None:
        self._questions.append(_Question(record.tp, record.offset, asyncio.create_task(self._in_turn(asking))))

    async def _in_turn(self, asking: Coroutine[Any, Any, _Answer]) -> _Answer:
        try:
            async with self._slots:
                return await asking
        finally:
            asking.close()  # where it was cancelled before it began

    async def _fetch(self, effects: Effects, wait: bool) -> None:
        if wait and self._questions:
            tasks = [question.answer for question in self._questions]
            await asyncio.wait(tasks, timeout=_FETCH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for question in self._questions:
            if question.answer.done():
                effects.outgoing += question.answer.result()
        self._questions = [question for question in self._questions if not question.answer.done()]


async def _back(tenant: str, session: str, asking: Coroutine[Any, Any, Opinion | Notes | None]) -> _Answer:
    try:
        answer = await asking
        return [] if answer is None else [Outgoing(tenant, "trajectories", session, answer.to_json())]
    finally:
        asking.close()  # where it was cancelled before it began


class LanguageModel:
    """A judge and a distiller behind one endpoint.

    Raises:
        ConfigError: the settings name no model, or the file of its answers cannot be used.
        ModelUnavailable: the extra `[llm]` is not installed.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        def observe(result: str, tokens: int) -> None:
            metrics.llm_questions(result).inc()
            metrics.llm_tokens().inc(tokens)
            if result == "ok":
                metrics.llm_session_tokens().observe(tokens)

        self._answers = Answers(settings.llm_answers, unkept=lambda: observe("unkept", 0))
        self._client = Client(settings, self._answers, observe)
        self._audit_share = settings.llm_audit_share
        self._distill_share = settings.llm_distill_share
        self.judge = LlmJudge(self._client)
        self.distiller = LlmDistiller(self._client)

    def judges(self, trajectory: Trajectory, source: str) -> bool:
        """Whether to ask for its verdict, where `source` gave the one that counts."""
        if trajectory.ending == "continued" or not trajectory.steps:
            return False
        audited = source in ("reward", "feedback") and _drawn("audit", trajectory, self._audit_share)
        return source == "none" or audited

    def notes(self, judgment: Judgment) -> bool:
        """Whether to ask for notes: of a session that failed by calls whose errors tell."""
        verdict, trajectory = judgment.verdict, judgment.trajectory
        failed = notable(verdict, "failure") and bool(telling(trajectory.calls))
        return failed and _drawn("distil", trajectory, self._distill_share)

    def place(self, trajectory: Trajectory) -> str:
        """By it judgments are keyed: one worker reads those of like goals."""
        return _place_of(trajectory) if self.distils else trajectory.session

    @property
    def distils(self) -> bool:
        return self._distill_share > 0

    async def close(self) -> None:
        await self._client.close()
        self._answers.close()


def _place_of(trajectory: Trajectory) -> str:
    """What sessions of like goals share: their task, or the words of their goal."""
    goal = " ".join(sorted(_goal_words(trajectory)))
    return trajectory.task or goal or trajectory.session


def _goal_words(trajectory: Trajectory) -> frozenset[str]:
    """The words of a goal, without its literals."""
    return frozenset(words(masked_text(trajectory.goal, frozenset())))


def _drawn(purpose: str, trajectory: Trajectory, share: float) -> bool:
    return drawn(f"{purpose}/{trajectory.tenant}/{trajectory.id}", share)


class _LikeSessions:
    """Remembers the judged sessions of like goals, and finds for each that failed the one that succeeded and is most
    like it.

    All judgments about one thing lie on one partition (`_place_of`), so one worker sees them. They are kept in memory:
    in a restart the last of each are forgotten, and what is asked then is asked about the session alone. Those of
    distrusted agents are passed over, so that their words do not come back in a model's.
    """

    def __init__(self, distrusted: Distrusted) -> None:
        self._distrusted = distrusted
        # By place: sessions by side and id.
        self._places: OrderedDict[tuple[str, str], dict[str, OrderedDict[str, Judgment]]] = OrderedDict()

    def add(self, tenant: str, judgment: Judgment) -> Iterator[tuple[Judgment, Judgment | None]]:
        """Remember a judgment; yield the failed sessions that it is news for, each with one that succeeded."""
        sides = self._sides(tenant, judgment)
        label, session = judgment.verdict.label, judgment.trajectory.id
        if not notable(judgment.verdict, label):
            return
        sides[label][session] = judgment
        while len(sides[label]) > _MOST_OF_A_SIDE:
            sides[label].popitem(last=False)
        if self._distrusted.holds(tenant, judgment.trajectory.agent):
            return
        succeeded = self._trusted(tenant, sides["success"])
        if label == "failure":
            yield judgment, _nearest(judgment, succeeded)
        else:
            for failed in self._trusted(tenant, sides["failure"]).values():
                if _nearest(failed, succeeded) is judgment:
                    yield failed, judgment

    def _sides(self, tenant: str, judgment: Judgment) -> dict[str, OrderedDict[str, Judgment]]:
        """Those of its place, without what was known of this very session."""
        key = tenant, _place_of(judgment.trajectory)
        sides = self._places.setdefault(key, {"success": OrderedDict(), "failure": OrderedDict()})
        self._places.move_to_end(key)
        while len(self._places) > _MOST_PLACES:
            self._places.popitem(last=False)
        for side in sides.values():
            side.pop(judgment.trajectory.id, None)
        return sides

    def _trusted(self, tenant: str, side: Mapping[str, Judgment]) -> Mapping[str, Judgment]:
        return {id: each for id, each in side.items() if not self._distrusted.holds(tenant, each.trajectory.agent)}

    def forget(self) -> None:
        self._places.clear()


def _nearest(failed: Judgment, succeeded: Mapping[str, Judgment]) -> Judgment | None:
    ranked = [(_likeness(failed.trajectory, each.trajectory), id) for id, each in succeeded.items()]
    likeness, id = max(ranked, default=(0.0, ""))
    return succeeded[id] if likeness >= _LIKE else None


def _likeness(one: Trajectory, other: Trajectory) -> float:
    some, others = _goal_words(one), _goal_words(other)
    return len(some & others) / len(some | others) if some | others else 1.0
