"""Read logged sessions in any form.

Our own form has two files:

- `steps.jsonl[.gz]`, a line a step: source, agent, session, task, goal, step, tool, input, output, error (null: it
  worked, or the log has no result if `output` is null, too), role (tool, message);
- `trajectories.jsonl[.gz]`, a line a session: source, agent, session, task, goal, outcome (0, 1), label_from
  (`env_reward`, `human`), place if any.
"""

from __future__ import annotations

import gzip
import re
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from fleetlore.errors import ConfigError
from fleetlore.transcripts import forms
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire import events as ev
from fleetlore.wire.decode import read_json
from fleetlore.wire.events import Kind

__all__ = ["FORMS", "TRAJECTORIES", "Form", "files_of", "groups_of", "read_files", "read_sessions"]

Reader = Callable[[Path], Iterator[LoggedSession | None]]

Form = Literal["messages", "claude-code", "inspect", "atif", "swe-agent"]
FORMS: dict[Form, tuple[Reader, tuple[str, ...]]] = {
    "messages": (forms.read_messages, (".jsonl", ".json")),
    "claude-code": (forms.read_claude_code, (".jsonl",)),
    "inspect": (forms.read_inspect, (".eval",)),
    "atif": (forms.read_atif, (".json",)),
    "swe-agent": (forms.read_swe_agent, (".traj",)),
}
TRAJECTORIES, _STEPS = "trajectories.jsonl", "steps.jsonl"
_HEAD = 65_536
_CALL_ID = re.compile(rb'"(toolu_\w+)"')


def files_of(paths: Sequence[Path], endings: Sequence[str]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise ConfigError(f"{path} does not exist")
        below = path.rglob("*") if path.is_dir() else (path,)
        found += sorted(
            each for each in below if each.is_file() and (each == path or each.name.endswith(tuple(endings)))
        )
    if not found:
        raise ConfigError(f"{', '.join(map(str, paths))} holds no file that ends in {' or '.join(endings)}")
    return found


def groups_of(files: Sequence[Path]) -> list[list[Path]]:
    """Return files in groups whose sessions share no history: copies of a transcript begin with the same call."""
    groups: dict[object, list[Path]] = {}
    for path in files:
        with path.open("rb") as file:
            first = _CALL_ID.search(file.read(_HEAD))
        groups.setdefault(first[1] if first else path, []).append(path)
    return list(groups.values())


def read_files(form: Form, files: Sequence[Path]) -> Iterator[LoggedSession | None]:
    """Yield sessions of files of one form, and None for each unreadable part."""
    read, _ = FORMS[form]
    if form == "claude-code":
        read = partial(forms.read_claude_code, seen=set())
    for path in files:
        try:
            written = min(path.stat().st_mtime, time.time())
            for session in read(path):
                if session is not None:
                    session.written = written
                yield session
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def read_sessions(path: Path) -> list[LoggedSession]:
    """Return all sessions at and below a path."""
    if not path.exists():
        raise ConfigError(f"{path} does not exist")
    own = sorted(path.rglob(f"{TRAJECTORIES}*")) if path.is_dir() else []
    if own:
        found = [each for file in own if file.suffix in (".jsonl", ".gz") for each in _read_own(file)]
    else:
        files = files_of([path], [ending for _, endings in FORMS.values() for ending in endings])
        found = [each for file in files if (form := _form_of(file)) for each in read_files(form, [file])]
    sessions = [each for each in found if each is not None]
    if not sessions:
        raise ConfigError(f"{path} holds no logged session in any form: {TRAJECTORIES}, {', '.join(FORMS)}")
    return sessions


def _form_of(path: Path) -> Form | None:
    if path.suffix == ".eval":
        return "inspect"
    if path.suffix == ".traj":
        return "swe-agent"
    try:
        first = read_json(next(forms.lines_of(path), b""))
    except msgspec.DecodeError:  # a document of several lines
        with path.open("rb") as file:
            return "atif" if b'"schema_version"' in file.read(_HEAD) else "messages"
    if not isinstance(first, dict):
        return "messages"
    if "steps" in first and "agent" in first:
        return "atif"
    if {"sessionId", "leafUuid", "snapshot"} & first.keys():
        return "claude-code"
    return "messages" if {"messages", "traj"} & first.keys() else None


def _read_own(trajectories: Path) -> Iterator[LoggedSession | None]:
    steps = trajectories.with_name(trajectories.name.replace(TRAJECTORIES, _STEPS))
    sessions: dict[str, LoggedSession] = {}
    try:
        for line in _lines(trajectories):
            sessions[line["session"]] = _session(line)
        for line in _lines(steps):
            if (session := sessions.get(line["session"])) is None:
                continue
            if line["role"] == "tool" and line["output"] is None and line["error"] is None:
                session.unanswered += 1
            else:
                session.events.append(_event(line))
    except (KeyError, TypeError, AttributeError) as error:
        said = f"{trajectories} and {steps.name} have other lines than their names say ({error!r})"
        raise ConfigError(f"{said}: give a log of another form another name") from None
    yield from sessions.values()


def _session(line: dict[str, Any]) -> LoggedSession:
    session = LoggedSession(line["session"], line["agent"], line["task"], line["goal"])
    session.source, session.place = line.get("source") or "", line.get("place") or ""
    if line.get("outcome") is not None:
        session.outcome = "success" if line["outcome"] else "failure"
        if line.get("label_from") == "env_reward":
            session.reward = float(line["outcome"])
    return session


def _event(line: dict[str, Any]) -> tuple[Kind, dict[str, Any]]:
    if line["role"] != "tool":
        return "message", {ev.ROLE: line["tool"], ev.CONTENT: line["output"] or line["input"] or ""}
    data = {ev.TOOL: line["tool"], ev.ARGUMENTS: line["input"], ev.RESULT: line["output"]}
    if line["error"] is not None:
        data[ev.ERROR_MESSAGE] = line["error"] or "error"
    return "outcome", data


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(forms.MAX_PART_BYTES + 1), b""), 1):
                if len(line) > forms.MAX_PART_BYTES:
                    raise ConfigError(f"{path}, line {number} has more than {forms.MAX_PART_BYTES} bytes")
                try:
                    yield read_json(line)
                except msgspec.DecodeError as error:
                    raise ConfigError(f"{path}, line {number}: {error}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
