"""Ask a model about judgments and send its opinions to `trajectories` (stage 5). It is optional.

The model judges sessions on which all other judges abstained, and a sample of the others, drawn by hash, to count its
errors (metric `judge_cases`). It takes seconds, so stage 3 merges its answer like feedback whenever it comes. The
commit waits for the answer. After a refusal or time-out, or without budget, the session keeps its judgment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from fleetlore.wire.topics import tenant_of
from fleetlore.wire.trajectory import Judgment, Trajectory
from models.llm.judge import LlmJudge
from streams.stage.base import Effects, Outgoing, Record, Stage, TopicPartition, Values
from streams.stage.operators import Erased

__all__ = ["OpinionsStage"]

_JUDGMENTS: Values[Judgment] = Values(Judgment)

# Limit of open questions. Above it the next batch waits.
_MOST_WAITING = 256
_FETCH_SECONDS = 0.05


class _Question(NamedTuple):
    tp: TopicPartition
    offset: int
    answer: asyncio.Task[Outgoing | None]


class OpinionsStage(Stage):
    name = "opinions"
    reads = "judgments"

    def __init__(self, model: LlmJudge, concurrency: int, erased: Erased) -> None:
        self._model = model
        self._erased = erased
        self._slots = asyncio.Semaphore(concurrency)
        self._questions: list[_Question] = []

    @property
    def holds(self) -> bool:
        return bool(self._questions)

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        for record, judgment in _JUDGMENTS.read(batch, effects):
            tenant, trajectory = tenant_of(record.topic), judgment.trajectory
            if self._erased.holds(tenant, trajectory.agent, trajectory.session):
                continue
            effects.newest = max(effects.newest, trajectory.ended)
            if self._model.judges(trajectory, judgment.verdict.source):
                answer = asyncio.create_task(self._ask(tenant, trajectory))
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

    async def _ask(self, tenant: str, trajectory: Trajectory) -> Outgoing | None:
        async with self._slots:
            opinion = await self._model.ask(trajectory)
        if opinion is None:
            return None
        return Outgoing(tenant, "trajectories", trajectory.session, opinion.to_json())

    async def _fetch(self, effects: Effects, wait: bool) -> None:
        if wait and self._questions:
            tasks = [question.answer for question in self._questions]
            await asyncio.wait(tasks, timeout=_FETCH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        answered = [question.answer.result() for question in self._questions if question.answer.done()]
        effects.outgoing += [answer for answer in answered if answer is not None]
        self._questions = [question for question in self._questions if not question.answer.done()]
