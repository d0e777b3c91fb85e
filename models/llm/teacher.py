"""Ask a model which word got a session past its failures, and show none of the text that it writes.

A lesson cites a failed call and a later call of the same tool that worked, and names one word of each. Code looks both
words up in the calls and makes a candidate of them, so quorum, gate and holdout treat it like any other recovery. The
model only says which of many changes mattered, which the distiller cannot tell if the calls differ in several parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from fleetlore.config import Settings
from fleetlore.fingerprint.literals import masked_text
from fleetlore.watch.harm import is_harmful
from fleetlore.wire.trajectory import Judgment, Step
from models.cases import error_text, is_shown_to_work, known_of, line, said, telling, worked_after
from models.llm.client import Answers, Client, Observe
from models.llm.judge import recording
from models.memory.candidate import SEVERAL_GOALS, Candidate, item_id, origin
from models.memory.identities import without_identities
from models.memory.quality import ERROR

__all__ = ["Teacher"]

VERSION: Final = "taught-1"
_MOST_LESSONS = 3
_STEP, _WORD = {"type": "integer"}, {"type": "string"}
_LESSON = {"failed": _STEP, "rejected": _WORD, "worked": _STEP, "instead": _WORD}
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "lessons": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": _LESSON,
                "required": list(_LESSON),
                "additionalProperties": False,
            },
        }
    },
    "required": ["lessons"],
    "additionalProperties": False,
}
# A word as programs write it. Nothing with a blank can be a sentence.
_ONE_WORD = re.compile(r"[\w./:=+-]{1,64}")


class Teacher:
    """Asks the model that the settings name, with the prompt `lessons-1`. Arguments and errors: see `Client`."""

    def __init__(self, settings: Settings, answers: Answers, observe: Observe) -> None:
        self._client = Client(settings, answers, "lessons-1", SCHEMA, observe)

    def teaches(self, judgment: Judgment) -> bool:
        """Whether a call failed for a reason that its error tells, and a later call of the same tool worked."""
        calls = judgment.trajectory.calls
        return any(next(worked_after(calls, place, calls[place].tool), None) for place in telling(calls))

    def known(self, judgment: Judgment) -> list[Candidate]:
        if not self.teaches(judgment):  # true of most sessions; the look-up costs a digest and a query
            return []
        return lessons(judgment, self._client.known(recording(judgment.trajectory)))

    async def ask(self, judgment: Judgment) -> list[Candidate]:
        """Return at most `_MOST_LESSONS` lessons. Those whose citations do not hold are left out."""
        return lessons(judgment, await self._client.ask(recording(judgment.trajectory)))

    async def close(self) -> None:
        await self._client.close()


def lessons(judgment: Judgment, answer: dict[str, Any] | None) -> list[Candidate]:
    given = (answer or {}).get("lessons")
    found = {each.item_id: each for each in _cited(judgment, given if isinstance(given, list) else [])}
    shown = {id for step in judgment.trajectory.steps for id in step.advice}
    return without_identities([each for id, each in sorted(found.items()) if id not in shown], judgment.trajectory)


def _cited(judgment: Judgment, given: list[Any]) -> Iterator[Candidate]:
    calls = judgment.trajectory.calls
    places = {call.sequence: place for place, call in enumerate(calls)}
    told = frozenset(telling(calls))
    for lesson in given[:_MOST_LESSONS]:
        lesson = lesson if isinstance(lesson, dict) else {}
        failed, worked = (lesson.get(key) for key in ("failed", "worked"))
        if type(failed) is not int or type(worked) is not int or places.get(failed) not in told:
            continue
        place = places[failed]
        if places.get(worked) not in list(worked_after(calls, place, calls[place].tool)):
            continue
        by, was, now = calls[places[worked]], lesson.get("rejected"), lesson.get("instead")
        if is_shown_to_work(judgment, by) and _is_change(calls[place], by, was, now):
            yield _candidate(judgment, calls[place], by, str(was), str(now))


def _is_change(failed: Step, worked: Step, was: object, now: object) -> bool:
    """A value of one task or person is no such word, unless the error names it."""
    if not isinstance(was, str) or not isinstance(now, str) or failed.is_cut or worked.is_cut:
        return False
    if not _ONE_WORD.fullmatch(was) or not _ONE_WORD.fullmatch(now):
        return False
    return (
        _has(failed.arguments, was)
        and not _has(worked.arguments, was)
        and not _has(failed.arguments, now)
        and _has(masked_text(worked.arguments, known_of(failed)), now)
    )


def _has(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def _candidate(judgment: Judgment, failed: Step, worked: Step, was: str, now: str) -> Candidate:
    trajectory, tool, error = judgment.trajectory, failed.tool, error_text(failed)
    return Candidate(
        **origin(trajectory),
        item_id=item_id(VERSION, trajectory.tenant, "recovery", tool, failed.pattern or "", was, now),
        kind="recovery",
        side="success",
        # A word that the error does not reject by name may be wrong for one task only.
        least_goals=1 if _has(said(failed).lower(), was.lower()) else SEVERAL_GOALS,
        title=line(f"{tool}: {line(error, 90)} — `{now}` instead of `{was}`", 200),
        description="A model found this in sessions in which calls with the second word failed and calls with the "
        "first worked.",
        content=f"{ERROR}{error}\nChange: `{now}` instead of `{was}`",
        when=f"{tool} fails with: {error}",
        tool=tool,
        pattern=failed.pattern,
        remedy={"tool": tool},
        was=(was,),
        now=(now,),
        danger=is_harmful(worked.tool, worked.arguments),
        version=VERSION,
    )
