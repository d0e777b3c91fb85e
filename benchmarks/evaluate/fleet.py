"""Advise an agent in a world of logs as fleetlore does: the past goes through the stages of the pipeline, then agents
ask.

One past serves all arms. They differ in the part of an `Advice` that an agent uses:

* `weights`: the chance of failure that the followed call model gives for each proposal (`Advice.risk`);
* `text`: the lore without the call model: at the start, before each call, after each failure;
* `both`: everything.

Tips are handed over by their parts (`benchmarks.evaluate.reading.told`). `placebo` is the rival of `text`: as many tips
at the same places, given at a task of another database.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Literal, Self

from benchmarks.evaluate.memories import Attended, Memory
from benchmarks.evaluate.placebo import Placebo
from benchmarks.evaluate.reading import told
from benchmarks.evaluate.recall import Note, Recall
from benchmarks.evaluate.world import LoggedTask, Reply
from fleetlore.agent.session import Session
from fleetlore.calls.model import CallModel
from fleetlore.transcripts.session import LoggedSession
from models.calls.training import CallTraining
from streams.offline.memory_pipeline import BATCH_SESSIONS, MemoryPipeline, events_of

Hears = Literal["weights", "text", "both"]


class Fleet:
    """One past, through the pipeline: its lore, and its call model."""

    def __init__(self, *, lore: bool) -> None:
        self._memory = MemoryPipeline(learn=lore)
        self._training = CallTraining()
        self._model: CallModel | None = None

    async def learn(self, past: Sequence[LoggedSession]) -> None:
        """Take in sessions, in this order."""
        memory = self._memory
        for start in range(0, len(past), BATCH_SESSIONS):
            batch = past[start : start + BATCH_SESSIONS]
            events = [event for each in batch for event in events_of(each, memory.clock)]
            for trajectory in await memory.take(events):
                self._training.learn(trajectory)
        self._model = CallModel.from_bytes(self._training.version().weights)

    def session(self, task: LoggedTask, id: str, *, model: bool) -> Session:
        """A session of an agent that follows the lore, and (`model`) the call model."""
        self._memory.call_model = self._model if model else None
        return self._memory.session("newcomer", task.goal, task.id, id, [], place=task.place)


class Told(Memory):
    """One arm.

    Args:
        learns: it is the arm that hands the past to the fleet; of those that share one the first does.
    """

    of_order = True

    def __init__(self, fleet: Fleet, hears: Hears, *, learns: bool) -> None:
        self._fleet = fleet
        self._hears = hears
        self._learns = learns
        self.in_session = hears in ("text", "both")

    async def learn(self, past: Sequence[LoggedSession]) -> None:
        if self._learns:
            await self._fleet.learn(past)

    def recall(self, task: LoggedTask) -> Recall:
        with self._fleet.session(task, f"{task.id}/asks", model=self._hears != "text") as session:
            advice = [session.advise(task.tool, text, unseen=False) for text in task.replies]
            of_task = session.advise(unseen=False)
        risks = [each.risk for each in advice] if self._hears in ("weights", "both") else []
        if self._hears == "weights":
            return Recall(risks=risks)
        notes = [told(tip, place) for place, each in enumerate(advice) for tip in each.tips]
        return Recall(self.said(task, [*map(told, of_task.tips), *notes]), risks)

    def attend(self, task: LoggedTask, recall: Recall, id: str) -> Attended:
        if not self.in_session:
            return Attended(recall)
        session = self._fleet.session(task, id, model=self._hears == "both")
        return _Listening(recall, session, lambda notes: self.said(task, notes))

    def said(self, task: LoggedTask, notes: Sequence[Note]) -> Sequence[Note]:
        """The notes that an agent at a task reads in place of these."""
        return notes


class OtherPlace(Told):
    """The placebo: tells what was last told at a task of another place."""

    def __init__(self, fleet: Fleet, *, learns: bool) -> None:
        super().__init__(fleet, "text", learns=learns)
        self._placebo = Placebo()

    def said(self, task: LoggedTask, notes: Sequence[Note]) -> Sequence[Note]:
        return self._placebo.instead(task.place or task.id, notes)


class _Listening(Attended):
    """Is told how others got past a failure, when it has met one."""

    def __init__(self, recall: Recall, session: Session, said: Callable[[Sequence[Note]], Sequence[Note]]) -> None:
        super().__init__(recall)
        self._session = session
        self._said = said

    async def __aenter__(self) -> Self:
        await self._session.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._session.__aexit__(kind, error, traceback)

    async def took(self, text: str, reply: Reply) -> bool:
        async with self._session.action(reply.call.tool, text) as action:
            if reply.call.failure is None:
                action.result = reply.call.said
                return False
            action.fail("", reply.call.said)
        notes = self._said([told(tip) for tip in self._session.advise().tips])
        if not notes:
            return False
        self.recall = Recall([*self.recall.notes, *notes], self.recall.risks)
        return True
