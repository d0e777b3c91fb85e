"""Read logged runs of agents: `steps.jsonl[.gz]` (a line a step) and `trajectories.jsonl[.gz]` (a line a session).

| file | a line holds |
| --- | --- |
| steps | source, agent, session, task, goal, step, tool, input, output, error (null: it worked), role (tool, message) |
| trajectories | source, agent, session, task, goal, outcome (0, 1), label_from (`env_reward`, `human`), place if any |
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from fleetlore.errors import ConfigError
from fleetlore.wire import events as ev
from fleetlore.wire.events import Kind

STEPS = "steps.jsonl"
TRAJECTORIES = "trajectories.jsonl"


@dataclass(slots=True)
class LoggedSession:
    """One session as it was logged.

    Attributes:
        events: (kind, data) in order, without its start and end.
        source: where it was logged: a benchmark, a product, a team.
        place: where it acted: a database, a repository, a host; empty where the log does not say.
    """

    session: str
    agent: str
    task: str
    goal: str
    outcome: ev.Outcome = "unknown"
    reward: float | None = None
    events: list[tuple[Kind, dict[str, Any]]] = field(default_factory=list)
    source: str = ""
    place: str = ""

    def all_events(self) -> list[tuple[Kind, dict[str, Any]]]:
        """Return its events with its start and end."""
        ended: dict[str, Any] = {ev.OUTCOME: self.outcome}
        if self.reward is not None:
            ended[ev.REWARD] = self.reward
        started: dict[str, Any] = {ev.GOAL: self.goal, ev.TASK: self.task}
        if self.place:
            started[ev.PLACE] = self.place
        return [("session.started", started), *self.events, ("session.ended", ended)]


def read_sessions(folder: Path) -> list[LoggedSession]:
    """Read all sessions below a folder, in the order of the files.

    Raises:
        ConfigError: there are none, or a file cannot be read.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder")
    files = sorted(path for path in folder.rglob(f"{TRAJECTORIES}*") if path.suffix in (".jsonl", ".gz"))
    if not files:
        raise ConfigError(f"{folder} holds no {TRAJECTORIES} or {TRAJECTORIES}.gz, nor does a folder below it")
    sessions: dict[str, LoggedSession] = {}
    for trajectories in files:
        for line in _lines(trajectories):
            session = LoggedSession(line["session"], line["agent"], line["task"], line["goal"])
            session.source, session.place = line.get("source") or "", line.get("place") or ""
            if line.get("outcome") is not None:
                session.outcome = "success" if line["outcome"] else "failure"
                if line.get("label_from") == "env_reward":
                    session.reward = float(line["outcome"])
            sessions[session.session] = session
        steps = trajectories.with_name(trajectories.name.replace(TRAJECTORIES, STEPS))
        for line in _lines(steps):
            if line["session"] in sessions:
                sessions[line["session"]].events.append(_event(line))
    return list(sessions.values())


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
    except (OSError, EOFError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
