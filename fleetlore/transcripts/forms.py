"""Read the logs of five makers: chats in JSON, and the archives of Inspect."""

from __future__ import annotations

import codecs
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from fleetlore.transcripts.calls import text_of_content
from fleetlore.transcripts.messages import is_message, take_message
from fleetlore.transcripts.session import MALFORMED, Conversation, LoggedSession, seconds_of
from fleetlore.wire import events as ev
from fleetlore.wire.decode import read_json, unpacked_zstd

__all__ = [
    "MAX_PART_BYTES", "lines_of", "read_atif", "read_claude_code", "read_inspect", "read_messages", "read_swe_agent",
]  # fmt: skip

# Limit of an unpacked part or line: a few kB on the disk may stand for gigabytes.
MAX_PART_BYTES = 128 * 1024 * 1024
_ATIF_ROLES = {"user": "user", "agent": "assistant"}
_ZSTANDARD = 93  # some versions of zipfile lack it
# Finished runs have the first, stopped ones the second only.
_HEADERS = ("header.json", "_journal/start.json")
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5}
_ATTACHED = "attachment://"
# Errors of a damaged or encrypted archive.
_DAMAGED = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError, OverflowError)


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield lines in UTF-8 without its byte order mark. A file with UTF-16's is translated."""
    with path.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            with path.open(encoding="utf-16", errors="replace", newline="\n") as text:
                yield from (line.encode("utf-8", "replace") for line in text)
            return
        file.seek(0)
        yield file.readline().removeprefix(codecs.BOM_UTF8)
        yield from file


def read_messages(path: Path) -> Iterator[LoggedSession | None]:
    """Read sessions of chat messages: a session a line, or an array of sessions (tau-bench, LangSmith). A malformed
    line gives None.

    A session is a list of messages (`fleetlore.transcripts.messages`), or an object that has one under `messages` or
    `traj`. Beside it may stand `id`, `task` or `task_id`, `goal`, `agent` or `model`, and `reward`, `success` or
    `outcome`.
    """
    lines = lines_of(path)
    for line in lines:
        try:
            found = read_json(line)
        except msgspec.DecodeError:
            if line.strip() not in (b"[", b"{"):  # the beginning of a document
                if line.strip():
                    yield None
                continue
            try:
                found = read_json(line + b"".join(lines))
            except msgspec.DecodeError:  # it was cut
                yield None
                continue
        if isinstance(found, list) and not (found and isinstance(found[0], dict) and is_message(found[0])):
            yield from (_readable(each) for each in found)  # an array of sessions
        else:
            yield _readable(found, line)


def _readable(found: Any, raw: bytes | None = None) -> LoggedSession | None:
    try:
        return _session_of(found, raw or msgspec.json.encode(found))
    except MALFORMED:
        return None


def _session_of(found: Any, raw: bytes) -> LoggedSession | None:
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
        try:
            take_message(talk, message, seconds_of(message.get("timestamp", message.get("created_at"))))
        except MALFORMED:
            talk.pass_over("message that cannot be read")
    reward, succeeded = about.get("reward"), about.get("success", about.get("resolved"))
    if about.get("outcome") in ("success", "failure"):
        succeeded = about["outcome"] == "success"
    talk.session.end(
        ev.finite(reward) if isinstance(reward, int | float) else None,
        succeeded if isinstance(succeeded, bool) else None,
    )
    return talk.done()


def read_claude_code(path: Path, seen: set[object] | None = None) -> Iterator[LoggedSession | None]:
    """Read a transcript of Claude Code, an entry a line. A malformed line gives None.

    `seen`: entries of other transcripts, with which a resumed, branched or copied session begins.
    """
    talk: Conversation | None = None
    for line in lines_of(path):
        try:
            entry = read_json(line)
        except msgspec.DecodeError:
            if line.strip():
                yield None
            continue
        message = entry.get("message") if isinstance(entry, dict) else None
        if not isinstance(message, dict) or entry.get("isMeta"):
            continue  # such as summaries
        if talk is None:
            # A sub-agent's file has the session's id and another name.
            talk = Conversation("claude-code", str(entry.get("sessionId", "")), path.stem, seen=seen)
        try:
            take_message(talk, message, seconds_of(entry.get("timestamp")))
        except MALFORMED:
            yield None
    if talk is not None:
        yield talk.done()


def read_atif(path: Path) -> Iterator[LoggedSession | None]:
    """Read a file in the Agent Trajectory Interchange Format, 1.4 to 1.7. Other files give None."""
    try:
        found = read_json(path.read_bytes())
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
    """Read a trajectory of SWE-agent, whose actions are shell commands. Other files give None."""
    raw = path.read_bytes()
    try:
        found = read_json(raw)
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
    """Read the samples of a log of Inspect (`.eval`), whose scores are rewards. Unreadable ones give None."""
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
                    yield _sample(read_json(_member(archive, name)), about)
                except (*MALFORMED, *_DAMAGED):
                    yield None


def _header(archive: zipfile.ZipFile) -> dict[str, Any]:
    for name in _HEADERS:
        with suppress(*MALFORMED, *_DAMAGED):
            return dict(read_json(_member(archive, name))["eval"])
    return {}


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    about = archive.getinfo(name)
    if about.file_size > MAX_PART_BYTES:
        raise zipfile.BadZipFile(f"{name} has more than {MAX_PART_BYTES} bytes")
    if about.compress_type != _ZSTANDARD:
        return archive.read(name)
    about.compress_type, about.CRC = zipfile.ZIP_STORED, None  # type: ignore[assignment]  # as it lies there
    about.file_size = about.compress_size
    unpacked = unpacked_zstd(archive.read(about), MAX_PART_BYTES)
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
    return (
        ev.finite(value) if isinstance(value, int | float) else _GRADES.get(value) if isinstance(value, str) else None
    )


def _whole(value: Any, attached: dict[str, Any]) -> Any:
    if isinstance(value, str) and value.startswith(_ATTACHED):
        return attached.get(value.removeprefix(_ATTACHED), value)
    if isinstance(value, dict):
        return {name: _whole(each, attached) for name, each in value.items()}
    return [_whole(each, attached) for each in value] if isinstance(value, list) else value
