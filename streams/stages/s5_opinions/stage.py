"""Ask a model, where one is set, about judgments, and send its opinions and notes back to `trajectories` (stage 5).

It distils sessions that failed, each beside one that succeeded at a like goal where there is one
(`streams.stages.s5_opinions.like_sessions`). A model takes seconds, so it is not asked where sessions are judged. Its
answer is a value of its own, like feedback, that the judging stage merges into the session's row whenever it comes. The
commit waits for it: a lost answer is asked for again, a second one changes nothing.

A question without an answer (budget, time-out, refusal) is not asked again: the session stays as it was judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from fleetlore.wire.topics import tenant_of
from fleetlore.wire.trajectory import Judgment
from models.judge.session_state import Notes, Opinion
from streams.stage.base import Effects, Outgoing, Record, Stage, TopicPartition, Values
from streams.stage.distrusted import Distrusted
from streams.stage.erased import Erased
from streams.stages.s3_judgments.language_model import LanguageModel
from streams.stages.s5_opinions.like_sessions import LikeSessions

_JUDGMENTS: Values[Judgment] = Values(Judgment)

# Open questions; with more of them the next batch waits.
_MOST_WAITING = 256
# How long an empty batch waits for an answer.
_FETCH_SECONDS = 0.05

_Answer = Sequence[Outgoing]


class _Question(NamedTuple):
    """A question, and where its judgment lies in the log."""

    tp: TopicPartition
    offset: int
    answer: asyncio.Task[_Answer]


class OpinionsStage(Stage):
    """See the module."""

    name = "opinions"
    reads = "judgments"

    def __init__(
        self,
        model: LanguageModel,
        concurrency: int,
        erased: Erased | None = None,
        distrusted: Distrusted | None = None,
    ) -> None:
        self._model = model
        self._erased = erased or Erased()
        self._erased_seen = 0
        self._slots = asyncio.Semaphore(concurrency)
        self._questions: list[_Question] = []
        self._like = LikeSessions(distrusted or Distrusted())

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
        """Add the answers that have come to the outgoing values."""
        if wait and self._questions:
            tasks = [question.answer for question in self._questions]
            await asyncio.wait(tasks, timeout=_FETCH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for question in self._questions:
            if question.answer.done():
                effects.outgoing += question.answer.result()
        self._questions = [question for question in self._questions if not question.answer.done()]


async def _back(tenant: str, session: str, asking: Coroutine[Any, Any, Opinion | Notes | None]) -> _Answer:
    """Ask, and address the answer to the session in question."""
    try:
        answer = await asking
        return [] if answer is None else [Outgoing(tenant, "trajectories", session, answer.to_json())]
    finally:
        asking.close()  # where it was cancelled before it began
