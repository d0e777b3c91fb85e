"""Distil with a model: what a session that failed should have done otherwise, beside what `models.distil` finds.

It reads the session alone, or with one that succeeded at a like goal.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from fleetlore.wire.trajectory import Judgment, encode
from models.judge.llm_opinion import MAX_PART, Note, Notes
from models.llm.client import Client, Prompt
from models.llm.corrections import MOST_NOTES, corrections
from models.llm.recording import brief, recording

__all__ = ["LlmDistiller"]

_FIELDS: Final = ("tool", "instead_of", "use")
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "maxItems": MOST_NOTES,
            "items": {
                "type": "object",
                "properties": {name: {"type": "string", "maxLength": MAX_PART} for name in _FIELDS},
                "required": list(_FIELDS),
                "additionalProperties": False,
            },
        }
    },
    "required": ["items"],
    "additionalProperties": False,
}


class LlmDistiller:
    """Asks `client` with the prompt `distill-2`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._prompt = Prompt.load("distill-2")
        self.version = f"llm/{client.version(self._prompt)}"

    def known(self, failed: Judgment) -> Notes | None:
        """The notes on a session, if it was asked about before; those of a pair count."""
        return self._kept("pair", failed) or self._kept("alone", failed)

    async def ask(self, failed: Judgment, helped: Judgment | None = None) -> Notes | None:
        """At most `MOST_NOTES` on a session that failed; None without a valid answer.

        Args:
            helped: a session that succeeded at a like goal.
        """
        kind = "alone" if helped is None else "pair"
        if (kept := self.known(failed)) is not None and (helped is None or self._kept("pair", failed) is not None):
            return kept  # once beside another session, and never alone after that
        text = "\n\n".join(
            f"This session ended in {each.verdict.label}:\n{recording(brief(each.trajectory))}"
            for each in (failed, helped)
            if each is not None
        )
        answer = await self._client.ask(self._prompt, text, _SCHEMA)
        notes = None if answer is None else corrections(answer, failed, helped)
        if notes is None:
            return None
        self._client.keep(self._prompt, _about(kind, failed), encode(notes).decode())
        return self.known(failed) or self._made(failed, notes)

    def _kept(self, kind: str, failed: Judgment) -> Notes | None:
        kept = self._client.kept(self._prompt, _about(kind, failed))
        return None if kept is None else self._made(failed, _read(kept))

    def _made(self, failed: Judgment, notes: tuple[Note, ...]) -> Notes:
        session, label = failed.trajectory, failed.verdict.label
        return Notes(session=session.id, events=session.events, label=label, version=self.version, notes=notes)


_read = msgspec.json.Decoder(tuple[Note, ...]).decode


def _about(kind: str, failed: Judgment) -> str:
    # What an answer says stood in sessions of one tenant.
    return f"{kind}\n{failed.trajectory.tenant}\n{recording(failed.trajectory)}"
