"""Read logged sessions: chats in JSON, and five makers' logs."""

import re
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from fleetlore.errors import ConfigError
from fleetlore.files import lines_of
from fleetlore.transcripts.calls import json_or_text, text_of_content
from fleetlore.transcripts.codex import read_codex
from fleetlore.transcripts.session import (
    DENIED,
    MALFORMED,
    MAX_GOAL,
    MAX_VALUES,
    SEEN,
    Conversation,
    LoggedSession,
    seconds_of,
    take_message,
)
from fleetlore.wire import events as ev
from fleetlore.wire.decode import changed_texts, read_json, unpacked_zstd

__all__ = ["FORMS", "Form", "files_of", "groups_of", "read_files", "read_sessions"]

Reader = Callable[..., Iterator[LoggedSession | None]]

# Limit of an unpacked part or line: a few kB may expand to gigabytes.
MAX_PART_BYTES = 128 * 1024 * 1024
# Fields that hold a session's messages.
_CHATS = ("messages", "traj", "contents", "conversation", "trajectory")
_ZSTANDARD = 93  # some versions of zipfile lack it
_HEADERS = ("header.json", "_journal/start.json")  # of finished runs, and of stopped ones
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5}
_ATTACHED = "attachment://"
_SKIPPED = ("isMeta", "isCompactSummary")
# Claude Code's own words, and commands that it obeys itself, in the role of a person.
_OWN_WORDS = re.compile(r"\[Request interrupted by user|<(?:command-name|local-command-|bash-std)")
_DAMAGED = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError, OverflowError)


def _read_messages(path: Path) -> Iterator[LoggedSession | None]:
    """Read sessions of chat messages: a session a line, or an array of sessions (tau-bench, LangSmith).

    A session is a list of messages, or an object with one under a name of `_CHATS`.
    """
    lines, ends = lines_of(path), set[int]()
    for number, line in enumerate(lines):
        try:
            found = read_json(line, MAX_VALUES)
        except msgspec.DecodeError:
            text = line.strip()
            # Only the first line of a document may hold more than its beginning: others may be cut.
            if text not in (b"[", b"{", b"[{") and (number or not text.endswith((b"[", b"{", b",", b":"))):
                if text:
                    yield None
                continue
            try:
                line += b"".join(lines)
                found = read_json(line, MAX_VALUES)
            except msgspec.DecodeError:  # it was cut
                yield None
                continue
        found = found.get("simulations", found) if isinstance(found, dict) else found  # tau2-bench
        if isinstance(found, list) and not (found and isinstance(found[0], dict) and _is_message(found[0])):
            yield from (_readable(each, ends) for each in found)
        else:
            # The last of several lines gets its end later.
            yield _readable(found, ends, line if line.endswith(b"\n") or not number else line + b"\n")


def _is_message(found: dict[str, Any]) -> bool:
    named = not found.keys().isdisjoint(("type", "parts", "kind")) and found.keys().isdisjoint(_CHATS)
    return named or "role" in found


def _readable(found: Any, ends: set[int], raw: bytes | None = None) -> LoggedSession | None:
    try:
        return _session_of(found, raw or msgspec.json.encode(found), ends)
    except MALFORMED:
        return None


def _history_of(messages: list[Any], ends: set[int]) -> int:
    """Return how many messages an earlier session ended with: each line of a log of requests repeats the one before."""
    key, history = 0, 0
    with suppress(*MALFORMED):  # one is nested too deep
        for number, message in enumerate(messages, 1):
            key = hash((key, msgspec.json.encode(message)))
            history = number if key in ends and (history or number < len(messages)) else history
        ends.add(key)
    return history


def _session_of(found: Any, raw: bytes, ends: set[int]) -> LoggedSession | None:
    about: dict[str, Any] = found if isinstance(found, dict) else {"messages": found}
    if isinstance(about.get("inputs"), dict):  # LangSmith
        about = about["inputs"] | about
    messages = next((json_or_text(about[name]) for name in _CHATS if about.get(name)), None)
    if isinstance(messages, list) and [type(each) for each in messages] == [list]:  # a batch of one
        [messages] = messages
    if not isinstance(messages, list) or (messages and not any(isinstance(each, dict) for each in messages)):
        return None
    agent, task = about.get("agent") or about.get("model"), about.get("task", about.get("task_id", ""))
    history = _history_of(messages, ends)
    talk = Conversation(
        "messages",
        str(about["id"]) if "id" in about else raw,
        *((str(history),) if history else ()),
        agent=agent if isinstance(agent, str) else "",
        task=str(task) if isinstance(task, str | int) else "",
        goal=str(about.get("goal") or ""),
    )
    for number, message in enumerate(messages, 1):
        with _counted(talk, "message"):
            take_message(talk, message, seconds_of(message.get("timestamp", message.get("created_at"))))
        if number == history:
            talk.forget()
    reward = (about.get("reward_info") or {}).get("reward", about.get("reward"))
    succeeded = about.get("success", about.get("resolved"))
    if about.get("outcome") in ("success", "failure"):
        succeeded = about["outcome"] == "success"
    reward = ev.finite(reward) if isinstance(reward, int | float) else None
    talk.session.end(reward, succeeded if isinstance(succeeded, bool) else None)
    return talk.done()


def _read_claude_code(path: Path, seen: set[object] | None = None) -> Iterator[LoggedSession | None]:
    """Read each prompt as a session: resumed, branched and copied transcripts keep the ids and times of their history.

    `seen`: entries of earlier transcripts, which are not read again.
    """
    seen = set() if seen is None else seen
    talks: list[Conversation] = []
    # By entry: sub-agents write between others' entries.
    talk_of: dict[object, Conversation | None] = {}
    last: Conversation | None = None
    goal, again = "", 0
    for line in lines_of(path):
        try:
            entry = read_json(line, MAX_VALUES)
            message, id, written = (entry.get(name) for name in ("message", "uuid", "timestamp"))
            talk = talk_of.get(parent, last) if (parent := entry.get("parentUuid")) else last
            content = message.get("content") if isinstance(message, dict) else None
            if content is None or any(map(entry.get, _SKIPPED)) or _OWN_WORDS.match(text_of_content(content)):
                talk_of[id] = talk
                continue
            holds_result = isinstance(content, list) and any("tool_use_id" in part for part in content)
            is_prompt = message.get("role") == "user" and not holds_result
            goal = goal or (text_of_content(content) if is_prompt else "")
            key = hash((id, written)) if id and written else object()
            if key in seen:
                again += 1
                last = talk_of.setdefault(id, None)
                continue
            seen.add(key)
            if talk is None or is_prompt:
                session = str(entry.get("sessionId", ""))
                # A sub-agent's file has the session's id and another name.
                parts = (str(id), str(written)) if id and written else (session, path.stem, str(len(talks)))
                about = "" if entry.get("isSidechain") else goal[:MAX_GOAL]
                talks.append(talk := Conversation("claude-code", *parts, goal=about, conversation=session))
            last = talk_of[id] = talk
            talk.entry = key
            if isinstance(ran := entry.get("toolUseResult"), dict) and ran.get("interrupted") is True:
                message = {**message, "content": [{**part, "outcome": "interrupted"} for part in message["content"]]}
            take_message(talk, message, seconds_of(written))
        except MALFORMED:
            if line.strip():
                yield None
    if again:
        talks += [] if talks else [Conversation("claude-code", path.stem)]
        talks[0].session.left_out[SEEN] += again
    for talk in talks:
        yield talk.done()
        # The result of such a call may be in a copy.
        seen -= talk.unanswered


def _read_atif(path: Path) -> Iterator[LoggedSession]:
    """Agent Trajectory Interchange Format, 1.4 to 1.7"""
    raw = path.read_bytes()
    found = read_json(raw, MAX_VALUES)
    id = found.get("session_id") or found.get("trajectory_id")
    talk = Conversation("atif", raw if id is None else str(id), agent=str(found["agent"]["name"]))
    for step in found["steps"]:
        with _counted(talk, "step"):
            time = seconds_of(step.get("timestamp"))
            if (role := {"user": "user", "agent": "assistant"}.get(step["source"])) is not None:
                talk.say(role, text_of_content(step.get("message")), time)
            for call in step.get("tool_calls") or ():
                talk.call(str(call.get("tool_call_id") or ""), str(call["function_name"]), call.get("arguments"))
            marked = (step.get("extra") or {}).get("tool_result_is_error") or None  # Harbor
            for result in (step.get("observation") or {}).get("results") or ():
                answered = str(result.get("source_call_id") or "")
                talk.result(answered, text_of_content(result.get("content")), marked, time)
    yield talk.done()


@contextmanager
def _counted(talk: Conversation, part: str) -> Iterator[None]:
    try:
        yield
    except MALFORMED:
        talk.pass_over(f"{part} that cannot be read")


def _read_swe_agent(path: Path) -> Iterator[LoggedSession]:
    raw = path.read_bytes()
    found = read_json(raw, MAX_VALUES)
    talk = Conversation("swe-agent", raw, task=path.stem)
    for message in found.get("history") or ():
        with _counted(talk, "message"):
            if message.get("role") == "user" and not talk.session.goal:
                talk.say("user", text_of_content(message.get("content")))
    for number, step in enumerate(found["trajectory"]):
        with _counted(talk, "step"):
            talk.say("assistant", str(step.get("thought") or ""))
            if step.get("action"):
                talk.call(str(number), "bash", {"command": step["action"]})
                if step.get("observation") is not None:
                    talk.result(str(number), str(step["observation"]))
    resolved = (found.get("info") or {}).get("resolved")
    talk.session.end(None, resolved if isinstance(resolved, bool) else None)
    yield talk.done()


def _read_inspect(path: Path) -> Iterator[LoggedSession | None]:
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
                    yield _sample(read_json(_member(archive, name), MAX_VALUES), about)
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
    if len(unpacked := unpacked_zstd(archive.read(about), MAX_PART_BYTES)) > MAX_PART_BYTES:
        raise zipfile.BadZipFile(f"{name} has more than {MAX_PART_BYTES} bytes")
    return unpacked


def _sample(sample: dict[str, Any], about: dict[str, Any]) -> LoggedSession:
    attached = sample.get("attachments") or {}

    def detached(text: str) -> Any:
        return attached.get(text.removeprefix(_ATTACHED), text) if text.startswith(_ATTACHED) else text

    whole = partial(changed_texts, change=detached)

    given: Any = sample.get("input") or ""
    goal = given if isinstance(given, str) else text_of_content(given[0].get("content"))
    parts = str(about.get("eval_id", "")), str(sample["id"]), str(sample.get("epoch", 1))
    agent, task = (str(about.get(name) or "")[: ev.MAX_ID_LENGTH] for name in ("model", "task"))
    talk = Conversation("inspect", *parts, agent=agent, task=task, goal=goal)
    for number, event in enumerate(sample.get("events") or ()):
        with _counted(talk, "event"):
            time, error = seconds_of(event.get("timestamp")), event.get("error")
            if event.get("event") == "tool":
                talk.call(str(number), str(event["function"]), whole(event.get("arguments")))
                if isinstance(error, dict):
                    text = f"{error.get('type', '')}: {error.get('message', '')}"
                    talk.result(str(number), DENIED if error.get("type") == "approval" else text, True, time)
                elif not event.get("pending"):
                    talk.result(str(number), whole(event.get("result")), event.get("failed") is True, time)
            elif event.get("event") == "model":
                choices = (event.get("output") or {}).get("choices") or [{}]
                talk.say("assistant", text_of_content((choices[0].get("message") or {}).get("content")), time)
    scores = sample.get("scores") or {}
    value = next(iter(scores.values())).get("value") if scores else None
    talk.session.end(ev.finite(value) if isinstance(value, int | float) else _GRADES.get(str(value)))
    return talk.done()


Form = Literal["messages", "claude-code", "codex", "inspect", "atif", "swe-agent"]
FORMS: dict[Form, tuple[Reader, tuple[str, ...]]] = {
    "messages": (_read_messages, (".jsonl", ".json")),
    "claude-code": (_read_claude_code, (".jsonl",)),
    "codex": (read_codex, (".jsonl",)),
    "inspect": (_read_inspect, (".eval",)),
    "atif": (_read_atif, (".json",)),
    "swe-agent": (_read_swe_agent, (".traj",)),
}
_HEAD = 65_536
_ENTRY_ID = re.compile(rb'"uuid"\s*:\s*"([^"]+)"')


def files_of(paths: Sequence[Path], endings: tuple[str, ...]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise ConfigError(f"{path} does not exist")
        below = path.rglob("*") if path.is_dir() else (path,)
        found += sorted(each for each in below if each.is_file() and (each == path or each.name.endswith(endings)))
    if not found:
        known = " or ".join(dict.fromkeys(endings))
        raise ConfigError(f"{', '.join(map(str, paths))} holds no file that ends in {known}")
    return found


def groups_of(files: Sequence[Path]) -> list[list[Path]]:
    """Group files by their first entry: copies of a transcript share it."""
    groups: dict[object, list[Path]] = {}
    for path in files:
        first = _ENTRY_ID.search(_beginning(path))
        groups.setdefault(first[1] if first else path, []).append(path)
    return list(groups.values())


def _beginning(path: Path) -> bytes:
    with _reading(path), path.open("rb") as file:
        return file.read(_HEAD)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def read_files(form: Form, files: Sequence[Path]) -> Iterator[LoggedSession | None]:
    """Yield sessions of one form, and None for each unreadable part."""
    read, _ = FORMS[form]
    if form in ("claude-code", "codex"):
        read = partial(read, seen=set())
        # A copy may end amid a prompt.
        files = sorted(files, key=lambda path: (b'"forkedFrom"' in _beginning(path), path.stat().st_mtime))
    for path in files:
        with _reading(path):
            written = min(path.stat().st_mtime, time.time())
            try:
                for session in read(path):
                    if session is not None:
                        session.written = written
                    yield session
            except MALFORMED:  # a document of one session
                yield None


def read_sessions(path: Path) -> list[LoggedSession]:
    files = files_of([path], tuple(ending for _, endings in FORMS.values() for ending in endings))
    forms = {file: _form_of(file) for file in files}
    found = [each for form in FORMS for each in read_files(form, [file for file in files if forms[file] == form])]
    sessions = [each for each in found if each is not None and each.events]
    if not sessions:
        raise ConfigError(f"{path} holds no logged session in any form: {', '.join(FORMS)}")
    return sessions


def _form_of(path: Path) -> Form | None:
    if path.suffix in (".eval", ".traj"):
        return "inspect" if path.suffix == ".eval" else "swe-agent"
    try:
        with _reading(path):
            first = read_json(next(lines_of(path), b""), MAX_VALUES)
    except msgspec.DecodeError:  # a document of several lines
        return "atif" if b'"schema_version"' in _beginning(path) else "messages"
    if not isinstance(first, dict):
        return "messages"
    if "steps" in first and "agent" in first:
        return "atif"
    if first.get("type") == "session_meta":
        return "codex"
    if {"sessionId", "leafUuid", "snapshot"} & first.keys():
        return "claude-code"
    return "messages" if first.keys() & {*_CHATS, "inputs", "simulations"} else None
