"""Stage 5, where a model is set: judgments → opinions and notes, back on the topic `trajectories`, as feedback comes.

A model takes seconds, so it is not asked where sessions are judged. What nobody could judge is read here from `judgments`, and
the answer is a value of its own that the judging stage merges into the session's row whenever it comes: one that is lost is
asked for again (the commit waits for it), one that comes twice changes nothing. What waits here delays nothing but itself.

A question without an answer (budget, time-out, refusal) is not asked again: the session stays as it was judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from fleetlore.topics import tenant_of
from fleetlore.trajectory import Judgment
from models.llm.opinion import Notes, Opinion
from streams.decode import Values
from streams.language_model import LanguageModel
from streams.stage import Effects, Outgoing, Record, Stage, TopicPartition

_JUDGMENTS: Values[Judgment] = Values(Judgment)

# Questions that wait or are being asked; with more of them the next batch waits.
MOST_WAITING = 256
# An empty batch, which comes to fetch answers, waits for one for so long.
FETCH_SECONDS = 0.05

Answer = Opinion | Notes | None


class Question(NamedTuple):
    """One that was asked, and where the judgment was read that it is about."""

    tenant: str
    session: str
    tp: TopicPartition
    offset: int
    answer: asyncio.Task[Answer]


class OpinionsStage(Stage):
    """See the module."""

    name = "opinions"
    reads = "judgments"

    def __init__(self, model: LanguageModel, concurrency: int) -> None:
        self._model = model
        self._slots = asyncio.Semaphore(concurrency)
        self._questions: list[Question] = []

    @property
    def holds(self) -> bool:
        return bool(self._questions)

    async def process(self, batch: Sequence[Record]) -> Effects:
        effects = Effects()
        for record, judgment in _JUDGMENTS.read(batch, effects):
            effects.newest = max(effects.newest, judgment.trajectory.ended)
            if self._model.judges(judgment.trajectory, judgment.verdict.source):
                self._put(record, judgment, self._model.judge.ask(judgment.trajectory))
            if self._model.notes(judgment):
                self._put(record, judgment, self._model.distiller.ask(judgment))
        await self._fetch(effects, wait=not batch)
        while len(self._questions) > MOST_WAITING:
            await self._fetch(effects, wait=True)
        return effects

    def committable(self, tp: TopicPartition, next_offset: int) -> int:
        return min([question.offset for question in self._questions if question.tp == tp] + [next_offset])

    def forget(self) -> None:
        for question in self._questions:
            question.answer.cancel()
        self._questions.clear()

    def _put(self, record: Record, judgment: Judgment, asking: Coroutine[Any, Any, Answer]) -> None:
        task = asyncio.create_task(self._in_turn(asking))
        session = judgment.trajectory.session
        self._questions.append(Question(tenant_of(record.topic), session, record.tp, record.offset, task))

    async def _in_turn(self, asking: Coroutine[Any, Any, Answer]) -> Answer:
        try:
            async with self._slots:
                return await asking
        finally:
            asking.close()  # one that never had its turn

    async def _fetch(self, effects: Effects, wait: bool) -> None:
        """Send on what has been answered."""
        if wait and self._questions:
            tasks = [question.answer for question in self._questions]
            await asyncio.wait(tasks, timeout=FETCH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for question in self._questions:
            answer = question.answer.result() if question.answer.done() else None
            if answer is not None:
                effects.outgoing.append(Outgoing(question.tenant, "trajectories", question.session, answer.to_json()))
        self._questions = [question for question in self._questions if not question.answer.done()]
