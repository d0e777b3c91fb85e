"""Ask a model about judgments (stage 5, optional). Opinions go to `trajectories`, lessons to `candidates`.

The model judges sessions on which all other judges abstained, and a sample of the others, drawn by a hash, to count its
errors. It is asked for lessons about sessions that got past a failure. No other stage waits for it. The commit waits
for the answer: a lost one is requested again, and a second one changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from fleetlore.wire.topics import tenant_of
from fleetlore.wire.trajectory import Judgment
from models.llm import LanguageModel
from streams.stage.base import Effects, Outgoing, Record, Stage, TopicPartition, Values
from streams.stage.operators import Erased

__all__ = ["OpinionsStage"]

_JUDGMENTS: Values[Judgment] = Values(Judgment)

_MOST_WAITING = 256
_FETCH_SECONDS = 0.05


class _Question(NamedTuple):
    tp: TopicPartition
    offset: int
    answer: asyncio.Task[list[Outgoing]]


class OpinionsStage(Stage):
    name = "opinions"
    reads = "judgments"

    def __init__(self, model: LanguageModel, concurrency: int, erased: Erased) -> None:
        self._judge, self._teacher = model.judge, model.teacher
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
