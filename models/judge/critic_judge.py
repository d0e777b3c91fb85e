"""The learned critic as a judge of complete sessions that no environment judged."""

from __future__ import annotations

from fleetlore.wire.trajectory import Trajectory, Verdict
from models.judge.critic import CONFIDENCE, Critic


class CriticJudge:
    """Its verdict carries the critic's calibrated probability.

    It abstains where the critic is less sure than `confidence`; where the session is unlike those the critic was fitted on, by its
    tools or its words, because there a calibrated probability is calibrated for something else; and where the critic's record on
    sessions of these tools that were left out of its fit does not bear the verdict out (`FamilyScore.allows`): in customer service
    most failures look like successes, and a critic that knows how often sessions succeed is sure of nearly all of them.
    """

    def __init__(self, critic: Critic, confidence: float = CONFIDENCE) -> None:
        if not 0.5 <= confidence <= 1:
            raise ValueError(f"a confidence is between 0.5 and 1, not {confidence}")
        self._critic = critic
        self._confidence = confidence
        self.version = f"{critic.version}@{confidence:g}"

    def judge(self, trajectory: Trajectory) -> Verdict | None:
        """The verdict, or None to abstain."""
        if trajectory.ending == "continued" or not self._critic.familiar(trajectory):
            return None
        success = 1 - float(self._critic.failure_probability([trajectory], None)[0])
        record = self._critic.record(trajectory)
        if max(success, 1 - success) < self._confidence or record is None or not record.allows(success < 0.5):
            return None
        return Verdict(
            label="success" if success > 0.5 else "failure", probability=success, source="critic", version=self.version
        )
