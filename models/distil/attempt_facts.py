"""Record what one of several parallel attempts at a task did, to contrast the successful ones with the failed ones.

(Self-contrast over parallel attempts: ReasoningBank, memory-aware test-time scaling.) A pair of sessions differs in
much that decided nothing. So of k attempts, the contrast keeps what most successes did and no failure, and the reverse:
calls, kinds of call and errors. Each aspect is one item beside the strategy (`models.distil.strategy`). A session
states only what it did, so the items follow from the set of sessions.
"""

from __future__ import annotations

from fleetlore.fingerprint.fingerprint import argument_shape
from fleetlore.wire.trajectory import Judgment, Step
from models.distil.formatting import MAX_ERROR, MAX_GOAL, MAX_STEP, VERSION, Calls, error_text, item_id, line
from models.distil.strategy import outline
from models.memory.candidate import FAILURE_BELOW, SUCCESS_ABOVE, Candidate, Side, origin

MAX_FACTS = 12

_WHAT = {
    "calls": "the calls they made",
    "kinds": "the kinds of call they made",
    "errors": "the errors they met",
}


def attempt_facts(judgment: Judgment, calls: Calls, telling: list[int]) -> list[Candidate]:
    """What one attempt did, by aspect; nothing of a session without a group or with an unsure verdict."""
    trajectory, probability = judgment.trajectory, judgment.verdict.probability
    side: Side | None = "success" if probability > SUCCESS_ABOVE else "failure" if probability < FAILURE_BELOW else None
    if not trajectory.group or side is None or not calls or (side == "success" and calls[-1].failed):
        return []
    task = trajectory.task or trajectory.group
    goal = line(trajectory.goal, MAX_GOAL) or task
    facts = {
        "calls": outline([call for call in calls if not call.failed]),
        "kinds": [_kind(call) for call in calls],
        "errors": [line(f"{calls[place].tool}: {error_text(calls[place])}", MAX_ERROR) for place in telling],
    }
    return [
        Candidate(
            **origin(trajectory),
            item_id=item_id(trajectory.tenant, "strategy", "attempts", aspect, task),
            kind="strategy",
            side=side,
            rank=(len(calls),),
            title=line(f"{_WHAT[aspect].capitalize()}: {goal}", 160),
            description="What tells attempts that succeeded"
            if side == "success"
            else f"from those that failed: {_WHAT[aspect]}.",
            when=f"the task is {task}",
            task=task,
            calls=tuple(dict.fromkeys(found))[-MAX_FACTS:],
            aspect=aspect,
            version=VERSION,
        )
        for aspect, found in facts.items()
    ]


def _kind(call: Step) -> str:
    failed = " → failed" if call.failed else ""
    return line(f"{call.tool}({argument_shape(call.arguments)}){failed}", MAX_STEP)
