"""Use fleetlore's procedural memory alone: the real learner, gate and risk model over the shipped base; no text is
read.

What the trainer's consumer does with a broker is done here in a row: judgments are offered, an update is made when one
is due, a candidate stands before the gate, and a version that passes is checked and swapped in by the policy as an
agent would.
"""

from __future__ import annotations

import copy

from benchmarks.evaluate.arms.memory import Memory, Recall, Situation
from benchmarks.evaluate.worlds.recorded import TENANT, Recorded
from fleetlore.risk.encoder import StaticEncoder
from fleetlore.risk.model import RiskModel
from fleetlore.risk.network import Base
from fleetlore.wire.adapter_manifest import DataRange
from models.adapter.learner import Learner

# Between two sessions on the learner's clock: an easy pace, at which eight waiting sessions are an update.
EASY_SECONDS = 10.0

# A busy fleet, at which an update takes a full batch.
BUSY_SECONDS = 0.01


class Weights(Memory):
    """See the module.

    Attributes:
        updates: made so far; `versions`: that passed the gate.
    """

    def __init__(self, base: Base, encoder: StaticEncoder, pace_seconds: float = EASY_SECONDS) -> None:
        self.risk_model = RiskModel(base, encoder)
        self.updates = 0
        self.versions = 0
        self._learner = Learner(TENANT, base, encoder)
        self._pace_seconds = pace_seconds
        self._now = 0.0

    async def twin(self) -> Weights:
        kept: dict[int, object] = {id(shared): shared for shared in (self.risk_model.base, self.risk_model.encoder)}
        # A loaded version is never changed, so both may hold it; which one is in use is each one's own.
        kept[id(self.risk_model)] = copy.copy(self.risk_model)
        return copy.deepcopy(self, kept)

    def recall(self, situation: Situation) -> Recall:
        calls = [(call.tool, call.arguments) for call in situation.candidates]
        seen = self.risk_model.outlook(situation.steps, situation.goal, calls)
        return Recall(
            risks=[None if each is None else each.fails for each in seen],
            vain=[None if each is None else each.ineffective for each in seen],
        )

    async def learn(self, recorded: Recorded) -> None:
        self._now += self._pace_seconds
        self._learner.offer(recorded.judgment(), self._now)
        while self._learner.update_due(self._now):
            self._learner.update(self._now)
            self.updates += 1
        if self._learner.candidate_due(self._now):
            self._stand_candidate()

    def _stand_candidate(self) -> None:
        candidate = self._learner.candidate()
        if not candidate.report.passed:
            return
        self.versions += 1
        data = (DataRange("judgments", 0, 0, int(self._now)),)
        manifest = self._learner.manifest(candidate, self.versions, data, self._now)
        self._learner.resume(candidate.weights, manifest)
        self.risk_model.swap(candidate.weights, manifest)
