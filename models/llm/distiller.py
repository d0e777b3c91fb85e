"""Distil with a model: what a session that failed should have done otherwise, beside what `models.distil` finds.

It reads the session alone, or with one that succeeded at a like goal. A model writes names that it has read, and
others. So each is held to the recordings: what was wrong stands in a call that failed and in its error, what to use
stands in a call that worked, in a result or in an error, and was not tried in vain. What holds a literal is one task's
and is dropped, and what names an end user of either session. So two sessions that teach the same give the same text,
and the evidence is counted for that text as for any other: of the agent whose session shows what to use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from fleetlore.fingerprint.fingerprint import arguments_text, parsed
from fleetlore.redact.redact import redact
from fleetlore.wire.trajectory import Judgment, Step, encode
from models.cases import error_text, known_of, named_by, telling
from models.distil.call_diff import masked_difference
from models.judge.session_state import MAX_PART, Note, Notes
from models.llm.client import Client, Prompt
from models.llm.judge import brief, recording
from models.memory.candidate import origin
from models.memory.identities import identities_of, replacing
from models.memory.quality import is_dangerous, names_all

__all__ = ["LlmDistiller"]

MOST_NOTES = 3

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


class _Item(msgspec.Struct, frozen=True, gc=False):
    """One item as the model wrote it."""

    tool: str
    instead_of: str
    use: str


def corrections(answer: Mapping[str, object], failed: Judgment, helped: Judgment | None) -> tuple[Note, ...] | None:
    """At most `MOST_NOTES` notes; None where the answer has another form, or more items than were asked for."""
    try:
        items = msgspec.convert(answer.get("items"), list[_Item], strict=True)
    except msgspec.ValidationError:
        return None
    if len(items) > MOST_NOTES:
        return None
    found = {note: None for item in items for note in _notes(item, failed, helped)}
    both = (failed, helped) if helped is not None else (failed,)
    replaced = replacing(identities_of(each.trajectory for each in both))
    return tuple(note for note in found if replaced([*note.was, *note.now]) == [*note.was, *note.now])


def _notes(item: _Item, failed: Judgment, helped: Judgment | None) -> Iterator[Note]:
    calls = failed.trajectory.calls
    others = helped.trajectory.calls if helped is not None else ()
    for call in (calls[at] for at in telling(calls) if calls[at].tool == item.tool):
        # A model quotes half a call for one word: what differs counts, and of that what the error names.
        change = masked_difference(item.instead_of.strip(), item.use.strip(), known_of(call), named_by(call))
        if change is None or len(change.was) != 1 or len(change.now) != 1:
            continue
        was, now = change.was[0], change.now[0]
        in_vain = any(each.pattern == call.pattern and _holds(each.arguments, now) for each in calls)
        if not _is_rejected(call, was) or not _is_part(was) or not _is_part(now) or in_vain:
            continue
        if _is_shown(now, calls):
            yield _note(call, was, now)
            return
        if helped is not None and _is_shown(now, others):
            by = origin(helped.trajectory)
            yield replace(_note(call, was, now), by=by["agent"], goal=by["goal"])
            return


def _is_rejected(call: Step, was: str) -> bool:
    """Whether the call holds it, and the error says so: else a model took something else for what was wrong."""
    return _holds(call.arguments, was) and _holds(call.error_message or "", was)


def _note(call: Step, was: str, now: str) -> Note:
    error = error_text(call)
    name = next((name for name, value in _arguments(call) if value == was), "")
    changed = replace(call, arguments=_whole(was).sub(lambda _: now, call.arguments))
    sides = [(f"{name}={part}" if name else part,) for part in (was, now)]
    return Note(
        tool=call.tool,
        error=error,
        pattern=call.pattern or "",
        was=sides[0],
        now=sides[1],
        named=names_all(error, (now,)),
        danger=is_dangerous(changed, call),
    )


def _is_part(text: str) -> bool:
    """Whether it can be a part of a call, and is no secret, and no literal."""
    return "<" not in text and 0 < len(text) <= MAX_PART and "\n" not in text and redact(text) == text


def _is_shown(part: str, read: Sequence[Step]) -> bool:
    return any(
        _holds(call.error_message or "", part)
        if call.failed
        else _holds(call.arguments, part) or _holds(call.result, part)
        for call in read
    )


def _arguments(call: Step) -> list[tuple[str, str]]:
    values = parsed(call.arguments)
    return [(name, arguments_text(value)) for name, value in values.items()] if isinstance(values, dict) else []


def _holds(text: str, part: str) -> bool:
    return _whole(part).search(text) is not None


def _whole(part: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(part)}(?!\w)", re.IGNORECASE)
