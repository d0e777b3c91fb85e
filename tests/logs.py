"""Logged sessions as a folder of files, as those of real agents lie."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# Tool, input, error and, where the log says it, the reward of a call.
LoggedCall = tuple[str, str, str | None] | tuple[str, str, str | None, float]


def write_logs(
    folder: Path, sessions: Iterable[tuple[str, str, object, Iterable[LoggedCall], Mapping[str, Any]]]
) -> Path:
    """Write (agent, task, outcome, calls, other fields) of sessions; the session's id is `AGENT:TASK`."""
    trajectories, steps = [], []
    for agent, task, outcome, calls, fields in sessions:
        base = {
            "source": "s",
            "agent": agent,
            "session": f"{agent}:{task}",
            "task": task,
            "goal": f"do {task}",
        } | fields
        rewards = [call[3] for call in calls if len(call) > 3]
        meta = {"rewards": rewards} if rewards else {}
        trajectories.append(base | {"outcome": outcome, "label_from": "env_reward", "meta": meta})
        for number, (tool, text, error, *_) in enumerate(calls):
            step = {"step": number, "tool": tool, "role": "tool", "input": text, "output": "[(1,)]", "error": error}
            steps.append(base | step)
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("trajectories", trajectories), ("steps", steps)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
