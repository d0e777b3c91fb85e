"""Read chat messages in JSON: a line a session, or an array of sessions (OpenAI, tau-bench, LangSmith).

A session is a list of messages, or an object that has one under `messages` or `traj`. Beside it may stand `id`, `task`
or `task_id`, `goal`, `agent` or `model`, and `reward`, `success` or `outcome`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from fleetlore.transcripts.conversation import MALFORMED, Conversation, seconds_of, text_of_content
from fleetlore.transcripts.session import LoggedSession, repeatable_id

FORM = "messages"


def read(path: Path) -> Iterator[LoggedSession | None]:
    """Sessions of a file; None for a line that is none."""
    with path.open("rb") as file:
        for line in file:
            try:
                found = orjson.loads(line)
            except orjson.JSONDecodeError:
                if line.strip() not in (b"[", b"{"):  # the first line of one document
                    yield None
                    continue
                try:
                    found = orjson.loads(line + file.read())
                except orjson.JSONDecodeError:  # it was cut
                    yield None
                    continue
            if isinstance(found, list) and not _is_message(found):
                yield from (_readable(each) for each in found)  # an array of sessions
            else:
                yield _readable(found, line)


def _readable(found: Any, raw: bytes | None = None) -> LoggedSession | None:
    try:
        return _session_of(found, raw or orjson.dumps(found))
    except MALFORMED:
        return None


def _session_of(found: Any, raw: bytes) -> LoggedSession | None:
    """A session; None where there are no messages.

    Raises:
        Exception: one of `MALFORMED`: its messages are of another shape.
    """
    about: dict[str, Any] = found if isinstance(found, dict) else {"messages": found}
    messages = about.get("messages") or about.get("traj")
    if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
        return None
    agent = about.get("agent") or about.get("model")
    task = about.get("task", about.get("task_id", ""))
    session = LoggedSession(
        repeatable_id(FORM, str(about["id"]) if "id" in about else raw),
        agent if isinstance(agent, str) else FORM,
        str(task) if isinstance(task, str | int) else "",
        str(about.get("goal") or ""),
        source=FORM,
    )
    talk = Conversation(session)
    for message in messages:
        _take(talk, message)
    reward, succeeded = about.get("reward"), about.get("success", about.get("resolved"))
    if about.get("outcome") in ("success", "failure"):
        succeeded = about["outcome"] == "success"
    session.end(
        float(reward) if isinstance(reward, int | float) else None, succeeded if isinstance(succeeded, bool) else None
    )
    return talk.done()


def _take(talk: Conversation, message: dict[str, Any]) -> None:
    role, content = message.get("role"), message.get("content")
    time = seconds_of(message.get("timestamp", message.get("created_at")))
    if role == "tool":
        # Some logs have no ids; a result then answers the call before it.
        talk.result(str(message.get("tool_call_id", "")), text_of_content(content), message.get("is_error"), time)
        return
    if role != "system":
        talk.say(str(role), text_of_content(content), time)
    for call in message.get("tool_calls") or ():
        made = call.get("function", call)
        talk.call(str(call.get("id", "")), str(made.get("name", "")), made.get("arguments", made.get("args")))


def _is_message(found: list[Any]) -> bool:
    return bool(found) and isinstance(found[0], dict) and "role" in found[0]
