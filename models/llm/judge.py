"""Judge with a model, the last judge of the chain: it is asked when all others abstain.

The rubric (completeness, grounding, right target) is that of ReasoningBank's stricter judge (April 2026). Unlike there,
an unsure answer is no verdict, and an answer that contradicts itself is unsure.
"""

from __future__ import annotations

from typing import Any, Final

from fleetlore.wire.trajectory import Trajectory, Verdict
from models.judge.llm_opinion import Opinion
from models.llm.client import Client, Prompt
from models.llm.recording import recording

__all__ = ["LlmJudge"]

_CHECKS: Final = ("complete", "grounded", "right_target")
_CHECK = {"type": "string", "enum": ["yes", "no", "unsure"]}
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "thoughts": {"type": "string"},
        **dict.fromkeys(_CHECKS, _CHECK),
        "verdict": {"type": "string", "enum": ["success", "failure", "unsure"]},
    },
    "required": ["thoughts", *_CHECKS, "verdict"],
    "additionalProperties": False,
}

# A model's own certainty is worth little, so it is not asked. Until its record says more (`models.judge.record`), it
# counts as right three times of four: a label to count by, but below what a lesson needs.
_PROBABILITY: Final = 0.75


class LlmJudge:
    """Asks `client` with the prompt `judge-1`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._prompt = Prompt.load("judge-1")
        self.version = f"llm/{client.version(self._prompt)}"

    def known(self, trajectory: Trajectory) -> Opinion | None:
        """The opinion, if it was asked for before."""
        answer = self._client.known(self._prompt, recording(trajectory))
        return None if answer is None else self._opinion(trajectory, answer)

    async def ask(self, trajectory: Trajectory) -> Opinion | None:
        """The opinion, or None if the model abstains or gives no answer."""
        answer = await self._client.ask(self._prompt, recording(trajectory), SCHEMA)
        return None if answer is None else self._opinion(trajectory, answer)

    def _opinion(self, trajectory: Trajectory, answer: dict[str, Any]) -> Opinion | None:
        checks = [answer.get(check) for check in _CHECKS]
        match answer.get("verdict"):
            case "success" if all(check == "yes" for check in checks):
                verdict = Verdict(label="success", probability=_PROBABILITY, source="llm", version=self.version)
            case "failure" if "no" in checks:
                verdict = Verdict(label="failure", probability=1 - _PROBABILITY, source="llm", version=self.version)
            case _:
                return None
        return Opinion(session=trajectory.id, events=trajectory.events, verdict=verdict)
