"""Write a session for a model to read: data between two marks, one JSON object a line.

JSON keeps a text on its line, so nothing that an agent or a tool wrote can end the recording or look like a step. The
marks hold a hash of the content, which cannot be forged from within.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import orjson
from msgspec.structs import replace

from fleetlore.wire.trajectory import Step, Trajectory

# Of a brief recording: characters of a call, an error and a result, and calls that failed and that worked.
BRIEF = 240
MOST = 3


def recording(trajectory: Trajectory) -> str:
    """The session's digest, without its verdict, its agent and its time."""
    short = trajectory.digest()
    rows = [{"goal": short.goal or short.task}, *(_row(step) for step in short.steps)]
    lines = "\n".join(orjson.dumps(row).decode() for row in rows)
    mark = blake2b(lines.encode(), digest_size=8).hexdigest()
    return f"----- recording {mark} begins\n{lines}\n----- recording {mark} ends"


def brief(trajectory: Trajectory) -> Trajectory:
    """The session with its first call of each failure and its last ones that worked, cut short: to read a word costs
    a small model milliseconds. One without calls is left as it is.
    """
    calls = trajectory.calls
    failed = {call.pattern: call for call in reversed(calls) if call.failed}
    worked = {call.arguments: call for call in calls if not call.failed}
    kept = {call.sequence for call in (*list(failed.values())[-MOST:], *list(worked.values())[-MOST:])}
    steps = [step.clipped(BRIEF) for step in calls if step.sequence in kept] if calls else trajectory.steps
    return replace(trajectory, steps=tuple(steps))


def _row(step: Step) -> dict[str, Any]:
    if step.role != "tool":
        return {"step": step.sequence, "by": step.role, "text": step.result}
    row: dict[str, Any] = {"step": step.sequence, "tool": step.tool, "arguments": step.arguments}
    if step.failed:
        row["error"] = step.error_message or step.error_type or "failed"
    if step.result and step.result != row.get("error"):
        row["result"] = step.result
    return row
