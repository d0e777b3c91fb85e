"""Ask a model how a session ended, and which word got it past its failures.

The judge's rubric follows ReasoningBank's stricter judge (April 2026). An unsure or contradictory answer is no verdict.

The teacher's lesson cites a failed call and a later call of the same tool that worked, and names one word of each. Code
looks both words up in the calls and makes a candidate, so quorum, gate and holdout treat it like any recovery, and no
text of the model is shown.

The session is data, one JSON object a line, between two marks with a hash of it, so no content can end the recording or
look like a step.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Annotated, Any, Final

import orjson
from msgspec import Meta, Struct, ValidationError, convert

from fleetlore.config import Settings
from fleetlore.fingerprint.literals import masked_text
from fleetlore.wire.stats import drawn
from fleetlore.wire.trajectory import Judgment, Step, Trajectory, Verdict
from models.distil.cases import JudgedCall, judged_calls, line, telling, worked_after
from models.judge import Opinion
from models.llm.client import Answers, Client, Observe
from models.memory.candidate import ERROR, SEVERAL_GOALS, Candidate, item_id
from models.memory.identities import without_identities

__all__ = ["LanguageModel", "Teacher"]

VERSION: Final = "taught-1"
_MOST_LESSONS = 3
_CHECKS: Final = ("complete", "grounded", "right_target")
# A model's own certainty is worth little. This is enough for a label, but not to teach a lesson (`SUCCESS_ABOVE`).
_PROBABILITY: Final = 0.75


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


# A program's word. Without blanks it is no sentence.
_Word = Annotated[str, Meta(pattern=r"\A[\w./:=+-]{1,64}\Z")]


class _Lesson(Struct):
    failed: int
    rejected: _Word
    worked: int
    instead: _Word


_STEP, _WORD = {"type": "integer"}, {"type": "string"}
_LESSONS: Final = _object(
    lessons={"type": "array", "items": _object(failed=_STEP, rejected=_WORD, worked=_STEP, instead=_WORD)}
)
VERDICT: Final = _object(
    thoughts=_WORD,
    **{check: {"type": "string", "enum": ["yes", "no", "unsure"]} for check in _CHECKS},
    verdict={"type": "string", "enum": ["success", "failure", "unsure"]},
)


class Teacher:
    """Uses the prompt `lessons-1`. Arguments and errors: see `Client`."""

    def __init__(self, settings: Settings, answers: Answers, observe: Observe) -> None:
        self._client = Client(settings, answers, "lessons-1", _LESSONS, observe)
        self.close = self._client.close

    def teaches(self, judgment: Judgment) -> bool:
        """Whether a call failed with an informative error, and a later call of the same tool worked."""
        calls = judged_calls(judgment)
        return any(next(worked_after(calls, place), None) for place in telling(calls))

    def known(self, judgment: Judgment) -> list[Candidate]:
        # Most sessions teach nothing, and the look-up costs a digest and a query.
        return lessons(judgment, self._client.known(recording(judgment.trajectory))) if self.teaches(judgment) else []

    async def ask(self, judgment: Judgment) -> list[Candidate]:
        """Return at most `_MOST_LESSONS` lessons. Those whose citations do not hold are left out."""
        return lessons(judgment, await self._client.ask(recording(judgment.trajectory)))


def lessons(judgment: Judgment, answer: dict[str, Any] | None) -> list[Candidate]:
    given = (answer or {}).get("lessons")
    found = {each.item_id: each for each in _cited(judgment, given if isinstance(given, list) else [])}
    shown = {id for step in judgment.trajectory.steps for id in step.advice}
    return without_identities([each for id, each in sorted(found.items()) if id not in shown], judgment.trajectory)


def _cited(judgment: Judgment, given: list[Any]) -> Iterator[Candidate]:
    calls = judged_calls(judgment)
    places, told = {call.step.sequence: place for place, call in enumerate(calls)}, frozenset(telling(calls))
    for each in given[:_MOST_LESSONS]:
        try:
            lesson = convert(each, _Lesson)
        except ValidationError:
            continue
        place, later = places.get(lesson.failed, -1), places.get(lesson.worked, -1)
        if place in told and place < later and calls[later] in worked_after(calls, place):
            failed, worked = calls[place], calls[later]
            if worked.is_shown_to_work and _is_change(failed, worked, lesson.rejected, lesson.instead):
                yield _candidate(judgment.trajectory, failed, worked, lesson)


def _is_change(failed: JudgedCall, worked: JudgedCall, was: str, now: str) -> bool:
    """One task's or person's value is no such word, unless the error names it."""
    return (
        not (failed.step.is_cut or worked.step.is_cut)
        and _has(failed.json, was)
        and not _has(worked.json, was)
        and not _has(failed.json, now)
        and _has(masked_text(worked.json, failed.known), now)
    )


def _has(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def _candidate(trajectory: Trajectory, failed: JudgedCall, worked: JudgedCall, lesson: _Lesson) -> Candidate:
    tool, error = failed.tool, failed.error
    was, now = lesson.rejected, lesson.instead
    change = f"`{now}` instead of `{was}`"
    return Candidate(
        **failed.recovery(trajectory), version=VERSION,
        item_id=item_id(VERSION, trajectory.tenant, "recovery", tool, failed.step.pattern or "", was, now),
        least_goals=1 if _has(failed.step.answer.lower(), was.lower()) else SEVERAL_GOALS,
        title=line(f"{tool}: {line(error, 90)} — {change}", 200),
        description="A model found this in sessions in which calls with the second word failed and calls with the "
        "first worked.",
        content=f"{ERROR}{error}\nChange: {change}", was=(was,), now=(now,), danger=worked.is_harmful,
    )  # fmt: skip


class LlmJudge:
    """Uses the prompt `judge-1`. Arguments and errors: see `Client`."""

    def __init__(self, settings: Settings, answers: Answers, observe: Observe) -> None:
        self._client = Client(settings, answers, "judge-1", VERDICT, observe)
        self.close = self._client.close
        self._audit_share = settings.llm_audit_share
        self.version = f"llm/{self._client.version}"

    def judges(self, trajectory: Trajectory, source: str) -> bool:
        if trajectory.ending == "continued" or not trajectory.steps:
            return False
        draw = f"audit/{trajectory.tenant}/{trajectory.id}"
        return source == "none" or (source in ("reward", "feedback") and drawn(draw, self._audit_share))

    def known(self, trajectory: Trajectory) -> Opinion | None:
        return self._opinion(trajectory, self._client.known(recording(trajectory)))

    async def ask(self, trajectory: Trajectory) -> Opinion | None:
        return self._opinion(trajectory, await self._client.ask(recording(trajectory)))

    def _opinion(self, trajectory: Trajectory, answer: dict[str, Any] | None) -> Opinion | None:
        answer = answer or {}
        label, checks = answer.get("verdict"), [answer.get(check) for check in _CHECKS]
        if label == "success" and all(check == "yes" for check in checks):
            probability = _PROBABILITY
        elif label == "failure" and "no" in checks:
            probability = 1 - _PROBABILITY
        else:
            return None
        verdict = Verdict(label=label, probability=probability, source="llm", version=self.version)
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


class LanguageModel:
    """A judge and a teacher that share one file of answers and one budget a day.

    `observe` is also called with `unkept` for an answer that could not be written. Raises as `Client` and `Answers` do.
    """

    def __init__(self, settings: Settings, observe: Observe = lambda result, tokens: None) -> None:
        self._answers = Answers(settings.llm_answers, unkept=lambda: observe("unkept", 0))
        self.judge = LlmJudge(settings, self._answers, observe)
        self.teacher = Teacher(settings, self._answers, observe)

    async def close(self) -> None:
        await self.judge.close()
        await self.teacher.close()
        self._answers.close()
