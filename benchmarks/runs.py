"""Read the public logs that are measured, in two files a source, which no agent writes.

- `steps.jsonl[.gz]`, a line a step: source, agent, session, task, goal, step, tool, input, output, error (null: it
  worked, or there is no result if `output` is null, too), role (tool, message);
- `trajectories.jsonl[.gz]`, a line a session: source, agent, session, task, goal, outcome (0, 1), label_from
  (`env_reward`, `human`), place if any.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleetlore.transcripts.read import read_sessions
from fleetlore.transcripts.session import LoggedSession
from fleetlore.wire import events as ev
from fleetlore.wire.decode import read_json

TRAJECTORIES = "trajectories.jsonl"


def read_runs(folder: Path) -> list[LoggedSession]:
    """Return the runs in a folder, in this form or else in any that the product reads. Raises ConfigError."""
    found = [session for path in sorted(folder.rglob(f"{TRAJECTORIES}*")) for session in _read(path)]
    return found or read_sessions(folder)


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        yield from map(read_json, file)


def _read(trajectories: Path) -> Iterator[LoggedSession]:
    sessions: dict[str, LoggedSession] = {}
    for line in lines_of(trajectories):
        sessions[line["session"]] = session = LoggedSession(line["session"], line["agent"], line["task"], line["goal"])
        session.source, session.place = line.get("source") or "", line.get("place") or ""
        if line.get("outcome") is not None:
            session.outcome = "success" if line["outcome"] else "failure"
            session.reward = float(line["outcome"]) if line.get("label_from") == "env_reward" else None
    for line in lines_of(trajectories.with_name(trajectories.name.replace(TRAJECTORIES, "steps.jsonl"))):
        if (found := sessions.get(line["session"])) is not None:
            _take(line, found)
    yield from sessions.values()


def _take(line: dict[str, Any], session: LoggedSession) -> None:
    if line["role"] != "tool":
        message = {ev.ROLE: line["tool"], ev.CONTENT: line["output"] or line["input"] or ""}
        session.events.append(("message", message))
    elif line["output"] is None and line["error"] is None:
        session.unanswered += 1
    else:
        data = {ev.TOOL: line["tool"], ev.ARGUMENTS: line["input"], ev.RESULT: line["output"]}
        failed = {} if line["error"] is None else {ev.ERROR_MESSAGE: line["error"] or "error"}
        session.events.append(("outcome", data | failed))
