"""Decide which sessions and which calls a language model may learn from, and count what is left out by its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fleetlore.advice.provenance import MARK
from fleetlore.redact.named_values import REDACTED
from fleetlore.wire.trajectory import Judgment, Step, Trajectory


def usable_sessions(judgments: Iterable[Judgment]) -> tuple[list[Judgment], Counter[str]]:
    """The sessions to learn from, sorted by id, and how many are left out by reason.

    Returns:
        Reasons: `guarded`: it broke a rule that its environment guards; `abstained`: nobody judged it; `part`: it is a
        part of a longer one; `incomplete`: some of its events never came; `recalled`: its texts quote advice.
    """
    kept: list[Judgment] = []
    left_out: Counter[str] = Counter()
    for judgment in judgments:
        reason = _reason(judgment)
        if reason is None:
            kept.append(judgment)
        else:
            left_out[reason] += 1
    return sorted(kept, key=lambda each: each.trajectory.id), left_out


def _reason(judgment: Judgment) -> str | None:
    session = judgment.trajectory
    if session.guard:
        return "guarded"
    if session.part or session.ending == "continued":
        return "part"
    if session.missing:
        return "incomplete"
    if judgment.verdict.label == "abstained":
        return "abstained"
    return "recalled" if _quotes_advice(session) else None


def _quotes_advice(session: Trajectory) -> bool:
    texts = (text for step in session.steps for text in (step.arguments, step.result, step.error_message or ""))
    return MARK in session.goal or any(MARK in text for text in texts)


def is_usable(call: Step) -> bool:
    """Whether a model may learn to make a call, or not to make it.

    Not one that was cut, that holds a masked secret, whose failure passes by itself, or before which the agent was told
    something: that was made by what it was told, which the prompt does not hold.
    """
    return not (call.is_cut or call.transient or call.advice or REDACTED in call.arguments)
