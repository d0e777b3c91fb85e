"""Read transcripts of Claude Code: a file a session, a line of JSON an entry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from fleetlore.transcripts.conversation import Conversation, seconds_of, text_of_content
from fleetlore.transcripts.session import LoggedSession, repeatable_id

FORM = "claude-code"
# A person stopped the call: that says nothing of the tool.
_STOPPED = ("The user doesn't want to", "[Request interrupted by user", "Interrupted by user")


def read(path: Path) -> Iterator[LoggedSession | None]:
    """The session of a file; None for a line that is no entry."""
    talk: Conversation | None = None
    with path.open("rb") as file:
        for line in file:
            try:
                entry = orjson.loads(line)
            except orjson.JSONDecodeError:
                yield None
                continue
            message = entry.get("message") if isinstance(entry, dict) else None
            if not isinstance(message, dict) or entry.get("isMeta"):
                continue  # summaries, snapshots and the like
            if talk is None:
                # A sub-agent's file has the session's id, and a name of its own.
                id = repeatable_id(FORM, str(entry.get("sessionId", "")), path.stem)
                talk = Conversation(LoggedSession(id, FORM, "", "", source=FORM))
            _take(talk, message, seconds_of(entry.get("timestamp")))
    if talk is not None:
        yield talk.done()


def _take(talk: Conversation, message: dict[str, Any], time: float) -> None:
    role, content = str(message.get("role")), message.get("content")
    if isinstance(content, str):
        talk.say(role, content, time)
        return
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            talk.say(role, str(part.get("text", "")), time)
        elif kind == "tool_use":
            talk.call(str(part.get("id")), str(part.get("name")), part.get("input"))
        elif kind == "tool_result":
            id, text = str(part.get("tool_use_id")), text_of_content(part.get("content"))
            if part.get("is_error") and text.startswith(_STOPPED):
                talk.unknown(id)
            else:
                talk.result(id, text, bool(part.get("is_error")), time)
