"""Read the logs of five makers: chats in JSON, and the archives of Inspect."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from fleetlore.errors import ModelUnavailable
from fleetlore.transcripts.session import MALFORMED, Conversation, LoggedSession, seconds_of, text_of_content
from fleetlore.wire import events as ev

__all__ = ["MAX_PART_BYTES", "read_atif", "read_claude_code", "read_inspect", "read_messages", "read_swe_agent"]

# Bytes of a part of an archive or a packed line once it is unpacked: a few kB on the disk may stand for gigabytes.
MAX_PART_BYTES = 128 * 1024 * 1024
_ATIF_ROLES = {"user": "user", "agent": "assistant"}
# A person stopped the call: that says nothing of the tool.
_STOPPED = ("The user doesn't want to", "[Request interrupted by user", "Interrupted by user")
_ZSTANDARD = 93  # a method that this Python's zipfile does not know
# A run that came to its end has the first; one that was stopped has the second alone.
_HEADERS = ("header.json", "_journal/start.json")
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5}
_ATTACHED = "attachment://"
# What a damaged archive raises: cut, changed, of a kind that this Python cannot read, or encrypted.
_DAMAGED = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError, OverflowError)


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


def read_inspect(path: Path) -> Iterator[LoggedSession | None]:
    """The samples of a log of Inspect (`.eval`), whose scores are rewards; None for one that cannot be read.

    Raises:
        ModelUnavailable: it is compressed with Zstandard and the package `zstandard` is not installed.
    """
    try:
        archive = zipfile.ZipFile(path)
    except _DAMAGED:
        yield None
        return
    with archive:
        about = _header(archive)
        for name in archive.namelist():
            if name.startswith("samples/") and name.endswith(".json"):
                try:
                    yield _sample(orjson.loads(_member(archive, name)), about)
                except (*MALFORMED, *_DAMAGED):
                    yield None


def _header(archive: zipfile.ZipFile) -> dict[str, Any]:
    for name in _HEADERS:
        with suppress(*MALFORMED, *_DAMAGED):
            return dict(orjson.loads(_member(archive, name))["eval"])
    return {}


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    about = archive.getinfo(name)
    if about.file_size > MAX_PART_BYTES:
        raise zipfile.BadZipFile(f"{name} has more than {MAX_PART_BYTES} bytes")
    if about.compress_type != _ZSTANDARD:
        return archive.read(name)
    try:
        import zstandard
    except ImportError:
        raise ModelUnavailable("this .eval needs zstandard: pip install zstandard") from None
    about.compress_type, about.CRC = zipfile.ZIP_STORED, None  # type: ignore[assignment]  # as it lies there
    about.file_size = about.compress_size
    try:
        with zstandard.ZstdDecompressor().stream_reader(archive.read(about)) as packed:
            unpacked = bytes(packed.read(MAX_PART_BYTES + 1))
    except zstandard.ZstdError as error:
        raise zipfile.BadZipFile(f"{name}: {error}") from None
    if len(unpacked) > MAX_PART_BYTES:
        raise zipfile.BadZipFile(f"{name} has more than {MAX_PART_BYTES} bytes")
    return unpacked


def _sample(sample: dict[str, Any], about: dict[str, Any]) -> LoggedSession:
    attached = sample.get("attachments") or {}
    given: Any = sample.get("input") or ""
    goal = given if isinstance(given, str) else text_of_content(given[0].get("content"))
    parts = str(about.get("eval_id", "")), str(sample["id"]), str(sample.get("epoch", 1))
    agent, task = (str(about.get(name) or "")[: ev.MAX_ID_LENGTH] for name in ("model", "task"))
    talk = Conversation("inspect", *parts, agent=agent, task=task, goal=goal)
    for number, event in enumerate(sample.get("events") or ()):
        time = seconds_of(event.get("timestamp"))
        if event.get("event") == "tool":
            error = event.get("error")
            talk.call(str(number), str(event["function"]), _whole(event.get("arguments"), attached))
            text = f"{error.get('type', '')}: {error.get('message', '')}" if isinstance(error, dict) else None
            result = text if text is not None else _whole(event.get("result"), attached)
            talk.result(str(number), result, text is not None, time)
        elif event.get("event") == "model":
            choices = (event.get("output") or {}).get("choices") or [{}]
            talk.say("assistant", text_of_content((choices[0].get("message") or {}).get("content")), time)
    talk.session.end(_reward(sample.get("scores") or {}))
    return talk.done()


def _reward(scores: dict[str, Any]) -> float | None:
    value = next(iter(scores.values())).get("value") if scores else None
    return float(value) if isinstance(value, int | float) else _GRADES.get(value) if isinstance(value, str) else None


def _whole(value: Any, attached: dict[str, Any]) -> Any:
    """A value with the texts that the log keeps apart."""
    if isinstance(value, str) and value.startswith(_ATTACHED):
        return attached.get(value.removeprefix(_ATTACHED), value)
    if isinstance(value, dict):
        return {name: _whole(each, attached) for name, each in value.items()}
    return [_whole(each, attached) for each in value] if isinstance(value, list) else value
