"""Read trajectories of SWE-agent (`.traj`): a JSON document a session, whose actions are commands of a shell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson

from fleetlore.transcripts.conversation import MALFORMED, Conversation
from fleetlore.transcripts.session import LoggedSession, repeatable_id

FORM = "swe-agent"
_TOOL = "bash"


def read(path: Path) -> Iterator[LoggedSession | None]:
    """The session of a file; None where it is none."""
    raw = path.read_bytes()
    try:
        found = orjson.loads(raw)
        talk = Conversation(LoggedSession(repeatable_id(FORM, raw), FORM, path.stem, "", source=FORM))
        for message in found.get("history") or ():
            if message.get("role") == "user" and not talk.session.goal:
                talk.say("user", str(message.get("content")))
        for number, step in enumerate(found["trajectory"]):
            talk.say("assistant", str(step.get("thought") or ""))
            if step.get("action"):
                talk.call(str(number), _TOOL, {"command": step["action"]})
                talk.result(str(number), str(step.get("observation") or ""))
        resolved = (found.get("info") or {}).get("resolved")
        talk.session.end(None, resolved if isinstance(resolved, bool) else None)
    except MALFORMED:
        yield None
    else:
        yield talk.done()
