"""Distil with a model: its notes on judged sessions, beside the quotes of the extractive distiller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from fleetlore.redact.redact import redact
from fleetlore.wire.trajectory import Judgment
from models.judge.llm_opinion import MAX_CONTENT, MAX_DESCRIPTION, MAX_TITLE, MAX_WHEN, Note, Notes
from models.llm.attempts import MOST_NOTES as MOST_ATTEMPT_NOTES
from models.llm.client import Client, Prompt
from models.llm.recording import recording

__all__ = ["LlmDistiller"]

MOST_NOTES = 3
_LIMITS: Final = {"title": MAX_TITLE, "description": MAX_DESCRIPTION, "content": MAX_CONTENT, "when": MAX_WHEN}
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in _LIMITS},
                "required": list(_LIMITS),
                "additionalProperties": False,
            },
        }
    },
    "required": ["items"],
    "additionalProperties": False,
}


class LlmDistiller:
    """Asks `client` with the prompt `distill-1`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._prompt = Prompt.load("distill-1")
        self.version = f"llm/{client.version(self._prompt)}"

    def known(self, judgment: Judgment) -> Notes | None:
        """The notes, if they were asked for before."""
        answer = self._client.known(self._prompt, _text_of([judgment]))
        return None if answer is None else self._notes(judgment, answer)

    async def ask(self, judgment: Judgment) -> Notes | None:
        """At most `MOST_NOTES` of a session; None without a valid answer."""
        answer = await self._client.ask(self._prompt, _text_of([judgment]), _SCHEMA)
        return None if answer is None else self._notes(judgment, answer)

    async def contrast(self, judgments: Sequence[Judgment]) -> tuple[Note, ...] | None:
        """At most `models.llm.attempts.MOST_NOTES` of several sessions of one task, some of which failed.

        None without a valid answer.
        """
        answer = await self._client.ask(self._prompt, _text_of(judgments), _SCHEMA)
        return None if answer is None else notes_of(answer, MOST_ATTEMPT_NOTES)

    def _notes(self, judgment: Judgment, answer: dict[str, Any]) -> Notes | None:
        notes = notes_of(answer, MOST_NOTES)
        if notes is None:
            return None
        trajectory, label = judgment.trajectory, judgment.verdict.label
        return Notes(session=trajectory.id, events=trajectory.events, label=label, version=self.version, notes=notes)


def notes_of(answer: dict[str, Any], most: int) -> tuple[Note, ...] | None:
    """The notes in an answer, on one line each, without secrets and duplicates; None if its form is wrong.

    Too many notes, or a text that is empty or far too long, show that the model did something else.
    """
    try:
        notes = msgspec.convert(answer.get("items"), list[Note], strict=True)
    except msgspec.ValidationError:
        return None
    kept: dict[str, Note] = {}
    for note in notes:
        texts = {name: redact(" ".join(getattr(note, name).split())) for name in _LIMITS}
        if not all(0 < len(text) <= 2 * _LIMITS[name] for name, text in texts.items()):
            return None
        cut = {name: text[: _LIMITS[name]] for name, text in texts.items()}
        kept.setdefault(cut["title"].casefold(), Note(**cut))
    return tuple(kept.values()) if len(notes) <= most else None


def _text_of(judgments: Sequence[Judgment]) -> str:
    """The recordings, each under its verdict."""
    return "\n\n".join(
        f"This session ended in {each.verdict.label}:\n{recording(each.trajectory)}" for each in judgments
    )
