"""Read trajectories in ATIF, the Agent Trajectory Interchange Format, 1.4 to 1.7: a JSON document a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson

from fleetlore.transcripts.conversation import MALFORMED, Conversation, seconds_of, text_of_content
from fleetlore.transcripts.session import LoggedSession, repeatable_id

FORM = "atif"
_ROLES = {"user": "user", "agent": "assistant"}


def read(path: Path) -> Iterator[LoggedSession | None]:
    """The session of a file; None where it is none."""
    try:
        found = orjson.loads(path.read_bytes())
        steps, agent = found["steps"], found["agent"]
        id = repeatable_id(FORM, str(found["session_id"]))
        talk = Conversation(LoggedSession(id, str(agent["name"]), "", "", source=FORM))
        for step in steps:
            time = seconds_of(step.get("timestamp"))
            if step["source"] in _ROLES:
                talk.say(_ROLES[step["source"]], text_of_content(step.get("message")), time)
            for call in step.get("tool_calls") or ():
                talk.call(str(call["tool_call_id"]), str(call["function_name"]), call.get("arguments"))
            for result in (step.get("observation") or {}).get("results") or ():
                talk.result(str(result.get("source_call_id")), text_of_content(result.get("content")), time=time)
    except MALFORMED:
        yield None
    else:
        yield talk.done()
