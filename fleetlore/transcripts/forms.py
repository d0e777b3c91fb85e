"""Read the chat logs of four makers, each in JSON."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from fleetlore.transcripts.session import MALFORMED, Conversation, LoggedSession, seconds_of, text_of_content

__all__ = ["read_atif", "read_claude_code", "read_messages", "read_swe_agent"]

_ATIF_ROLES = {"user": "user", "agent": "assistant"}
# A person stopped the call: that says nothing of the tool.
_STOPPED = ("The user doesn't want to", "[Request interrupted by user", "Interrupted by user")


def read_messages(path: Path) -> Iterator[LoggedSession | None]:
    """Sessions of chat messages: a line a session, or an array of sessions (OpenAI, tau-bench, LangSmith); None for a
    line that is none.

    A session is a list of messages, or an object that has one under `messages` or `traj`. Beside it may stand `id`,
    `task` or `task_id`, `goal`, `agent` or `model`, and `reward`, `success` or `outcome`.
    """
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
    talk = Conversation(
        "messages",
        str(about["id"]) if "id" in about else raw,
        agent=agent if isinstance(agent, str) else "",
        task=str(task) if isinstance(task, str | int) else "",
        goal=str(about.get("goal") or ""),
    )
    for message in messages:
        _take_message(talk, message)
    reward, succeeded = about.get("reward"), about.get("success", about.get("resolved"))
    if about.get("outcome") in ("success", "failure"):
        succeeded = about["outcome"] == "success"
    talk.session.end(
        float(reward) if isinstance(reward, int | float) else None, succeeded if isinstance(succeeded, bool) else None
    )
    return talk.done()


def _take_message(talk: Conversation, message: dict[str, Any]) -> None:
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


def read_claude_code(path: Path) -> Iterator[LoggedSession | None]:
    """The session of a transcript of Claude Code, an entry a line; None for a line that is no entry."""
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
                talk = Conversation("claude-code", str(entry.get("sessionId", "")), path.stem)
            _take_entry(talk, message, seconds_of(entry.get("timestamp")))
    if talk is not None:
        yield talk.done()


def _take_entry(talk: Conversation, message: dict[str, Any], time: float) -> None:
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


def read_atif(path: Path) -> Iterator[LoggedSession | None]:
    """The session of a file in the Agent Trajectory Interchange Format, 1.4 to 1.7; None where it is none."""
    try:
        found = orjson.loads(path.read_bytes())
        talk = Conversation("atif", str(found["session_id"]), agent=str(found["agent"]["name"]))
        for step in found["steps"]:
            time = seconds_of(step.get("timestamp"))
            if step["source"] in _ATIF_ROLES:
                talk.say(_ATIF_ROLES[step["source"]], text_of_content(step.get("message")), time)
            for call in step.get("tool_calls") or ():
                talk.call(str(call["tool_call_id"]), str(call["function_name"]), call.get("arguments"))
            for result in (step.get("observation") or {}).get("results") or ():
                talk.result(str(result.get("source_call_id")), text_of_content(result.get("content")), time=time)
    except MALFORMED:
        yield None
    else:
        yield talk.done()


def read_swe_agent(path: Path) -> Iterator[LoggedSession | None]:
    """The session of a trajectory of SWE-agent, whose actions are commands of a shell; None where it is none."""
    raw = path.read_bytes()
    try:
        found = orjson.loads(raw)
        talk = Conversation("swe-agent", raw, task=path.stem)
        for message in found.get("history") or ():
            if message.get("role") == "user" and not talk.session.goal:
                talk.say("user", str(message.get("content")))
        for number, step in enumerate(found["trajectory"]):
            talk.say("assistant", str(step.get("thought") or ""))
            if step.get("action"):
                talk.call(str(number), "bash", {"command": step["action"]})
                talk.result(str(number), str(step.get("observation") or ""))
        resolved = (found.get("info") or {}).get("resolved")
        talk.session.end(None, resolved if isinstance(resolved, bool) else None)
    except MALFORMED:
        yield None
    else:
        yield talk.done()
