"""Judge with a model, which is asked when all other judges abstain.

The rubric (completeness, grounding, right target) is that of ReasoningBank's stricter judge (April 2026). An unsure
answer is no verdict, and an answer that contradicts itself is unsure. The session is data between two marks that hold a
hash of the content, one JSON object a line, so nothing in it can end the recording or look like a step.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import orjson

from fleetlore.config import Settings
from fleetlore.stats.hashing import drawn
from fleetlore.wire.trajectory import Step, Trajectory, Verdict
from models.judge import Opinion
from models.llm.client import Answers, Client, Observe

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

# A model's own certainty is worth little, so it is not asked. This is enough for a label, but too little to teach a
# lesson (`SUCCESS_ABOVE`).
_PROBABILITY: Final = 0.75


class LlmJudge:
    """Asks the model that the settings name, with the prompt `judge-1`. Arguments and errors: see `Client`."""

    def __init__(self, settings: Settings, answers: Answers, observe: Observe) -> None:
        self._client = Client(settings, answers, "judge-1", SCHEMA, observe)
        self._audit_share = settings.llm_audit_share
        self.version = f"llm/{self._client.version}"

    def judges(self, trajectory: Trajectory, source: str) -> bool:
        if trajectory.ending == "continued" or not trajectory.steps:
            return False
        draw = f"audit/{trajectory.tenant}/{trajectory.id}"
        return source == "none" or (source in ("reward", "feedback") and drawn(draw, self._audit_share))

    def known(self, trajectory: Trajectory) -> Opinion | None:
        answer = self._client.known(recording(trajectory))
        return None if answer is None else self._opinion(trajectory, answer)

    async def ask(self, trajectory: Trajectory) -> Opinion | None:
        answer = await self._client.ask(recording(trajectory))
        return None if answer is None else self._opinion(trajectory, answer)

    async def close(self) -> None:
        await self._client.close()

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


def recording(trajectory: Trajectory) -> str:
    """The session's digest, without its verdict, its agent and its time."""
    short = trajectory.digest()
    rows = [{"goal": short.goal or short.task}, *(_row(step) for step in short.steps)]
    lines = "\n".join(orjson.dumps(row).decode() for row in rows)
    mark = blake2b(lines.encode(), digest_size=8).hexdigest()
    return f"----- recording {mark} begins\n{lines}\n----- recording {mark} ends"


def _row(step: Step) -> dict[str, Any]:
    if step.role != "tool":
        return {"step": step.sequence, "by": step.role, "text": step.result}
    row: dict[str, Any] = {"step": step.sequence, "tool": step.tool, "arguments": step.arguments}
    if step.failed:
        row["error"] = step.error_message or step.error_type or "failed"
    if step.result and step.result != row.get("error"):
        row["result"] = step.result
    return row
