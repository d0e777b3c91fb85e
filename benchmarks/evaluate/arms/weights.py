"""Use what fleetlore's call model foresees of calls, and no text.

What the trainer does with a broker is done here in a row: sessions are learned, a version stands before its gate, and
one that passes is what agents ask from then on.
"""

from __future__ import annotations

import copy

from benchmarks.evaluate.arms.in_fleet import InFleet, events_of
from benchmarks.evaluate.arms.memory import Recall, Situation
from benchmarks.evaluate.worlds.recorded import Recorded
from fleetlore.calls.model import CallModel
from models.calls.gate import judge_candidate
from models.calls.training import CallTraining
from streams.offline.memory_pipeline import MemoryPipeline


class Weights(InFleet):
    """See the module.

    Attributes:
        clock: event time of what the call model learns.
    """

    def __init__(self) -> None:
        super().__init__(MemoryPipeline(learn=False))
        self.clock = self.fleet.clock
        self.calls = CallTraining()
        self._is_new = False  # whether the call model has learned a session that no version holds

    async def twin(self) -> Weights:
        fleet = MemoryPipeline(self.clock.now(), learn=False)  # its stage keeps nothing of sessions that have ended
        # A version is never changed, so both may hold it; which one is in use is each one's own.
        fleet.call_model = self.fleet.call_model
        kept: dict[int, object] = {id(self.fleet): fleet, id(self.clock): fleet.clock, id(self._session): None}
        return copy.deepcopy(self, kept)

    async def begin(self, situation: Situation) -> None:
        self.publish_calls()
        await super().begin(situation)

    def recall(self, situation: Situation) -> Recall:
        return self.foreseen(situation)

    async def end(self, recorded: Recorded) -> None:
        await self.close(recorded)
        await self.learn(recorded)

    async def learn(self, recorded: Recorded) -> None:
        for trajectory in await self.fleet.take(events_of(recorded, self.clock)):
            self.calls.learn(trajectory)
            self._is_new = True

    def publish_calls(self) -> None:
        """Put what the call model has learned into service, if it passes its gate."""
        if self._is_new:
            self._is_new = False
            candidate = self.calls.version()
            if judge_candidate(candidate.foreseen).passed:
                self.fleet.call_model = CallModel.from_bytes(candidate.weights)
