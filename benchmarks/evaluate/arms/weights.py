"""Use what fleetlore's models foresee of calls, and no text: the call model, and the network beside it where it adds.

What the trainer does with a broker is done here in a row: sessions are learned, an update is made when one is due, a
candidate stands before its gate, and a version that passes is what agents ask from then on.
"""

from __future__ import annotations

import copy

from benchmarks.evaluate.arms.in_fleet import InFleet, events_of
from benchmarks.evaluate.arms.memory import Recall, Situation
from benchmarks.evaluate.worlds.recorded import TENANT, Recorded
from fleetlore.calls.model import CallModel
from fleetlore.retrieval.encoder import StaticEncoder
from fleetlore.risk.model import RiskModel
from fleetlore.risk.network import Base
from fleetlore.wire.adapter_manifest import DataRange
from models.adapter.beside import line_of
from models.adapter.learner import Learner
from models.calls.gate import judge_candidate
from models.calls.training import CallTraining
from streams.offline.memory_pipeline import MemoryPipeline

# Between two sessions on the learner's clock: an easy pace, at which eight waiting sessions are an update.
EASY_SECONDS = 10.0

# A busy fleet, at which an update takes a full batch.
BUSY_SECONDS = 0.01


class Weights(InFleet):
    """See the module.

    Attributes:
        clock: event time of what the call model learns.
        updates: made so far; `versions`: of the network, that passed the gate.
    """

    def __init__(self, base: Base, encoder: StaticEncoder, pace_seconds: float = EASY_SECONDS) -> None:
        super().__init__(MemoryPipeline(learn=False))
        self.risk_model = self.fleet.risk_model = RiskModel(base, encoder)
        self.clock = self.fleet.clock
        self.updates = 0
        self.versions = 0
        self._calls = CallTraining()
        self._is_new = False  # whether the call model has learned a session that no version holds
        self._learner = Learner(TENANT, base, encoder)
        self._pace_seconds = pace_seconds
        self._now = 0.0

    async def twin(self) -> Weights:
        kept: dict[int, object] = {id(shared): shared for shared in (self.risk_model.base, self.risk_model.encoder)}
        fleet = MemoryPipeline(self.clock.now(), learn=False)  # its stage keeps nothing of sessions that have ended
        # A loaded version is never changed, so both may hold it; which one is in use is each one's own.
        fleet.call_model, fleet.risk_model = self.fleet.call_model, copy.copy(self.risk_model)
        kept |= {id(self.fleet): fleet, id(self.clock): fleet.clock, id(self.risk_model): fleet.risk_model}
        kept[id(self._session)] = None
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
            self._calls.learn(trajectory)
            self._is_new = True
        self._now += self._pace_seconds
        self._learner.offer(recorded.judgment(), self._now)
        while self._learner.update_due(self._now):
            self._learner.update(self._now)
            self.updates += 1
        if self._learner.candidate_due(self._now):
            self._stand_candidate()

    def publish_calls(self) -> None:
        """Put what the call model has learned into service, if it passes its gate."""
        if self._is_new:
            self._is_new = False
            candidate = self._calls.version()
            if judge_candidate(candidate).passed:
                self.fleet.call_model = CallModel.from_bytes(candidate.weights)

    def _stand_candidate(self) -> None:
        candidate = self._learner.candidate(line_of(TENANT, self._calls.version().foreseen))
        if not candidate.report.passed:
            return
        self.versions += 1
        data = (DataRange("judgments", 0, 0, int(self._now)),)
        manifest = self._learner.manifest(candidate, self.versions, data, self._now)
        self._learner.resume(candidate.weights, manifest)
        self.risk_model.swap(candidate.weights, manifest)
