"""Read logged runs of agents: `steps.jsonl[.gz]` (a line a step) and `trajectories.jsonl[.gz]` (a line a session).

| file | a line holds |
| --- | --- |
| steps | source, agent, session, task, goal, step, tool, input, output, error (null: it worked), role (tool, message) |
| trajectories | source, agent, session, task, goal, outcome (0, 1), label_from (`env_reward`, `human`), place if any |
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from fleetlore.errors import ConfigError
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire import events as ev
from fleetlore.wire.events import Kind

_STEPS = "steps.jsonl"
TRAJECTORIES = "trajectories.jsonl"


def read(trajectories: Path) -> Iterator[LoggedSession | None]:
    """All sessions of a file of trajectories, with the steps that lie beside it.

    Raises:
        ConfigError: a file cannot be read, or holds something else.
    """
    steps = trajectories.with_name(trajectories.name.replace(TRAJECTORIES, _STEPS))
    sessions: dict[str, LoggedSession] = {}
    try:
        for line in _lines(trajectories):
            sessions[line["session"]] = _session(line)
        for line in _lines(steps):
            if line["session"] in sessions:
                sessions[line["session"]].events.append(_event(line))
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
            for number, line in enumerate(file, 1):
                try:
                    yield orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    raise ConfigError(f"{path}, line {number}: {error}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
