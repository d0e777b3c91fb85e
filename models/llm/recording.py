"""A session as a model reads it: data between two marks, one JSON object a line.

JSON keeps a text on its line, so nothing that an agent or a tool wrote can end the recording or look like a step; and the marks
hold a hash of what is between them, which nobody can write who does not know all of it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import orjson

from fleetlore.wire.trajectory import Step, Trajectory


def recording(trajectory: Trajectory) -> str:
    """The session's digest, without anything that says how it was judged, who ran it or when."""
    short = trajectory.digest()
    rows = [{"goal": short.goal or short.task}, *(_row(step) for step in short.steps)]
    lines = "\n".join(orjson.dumps(row).decode() for row in rows)
    mark = blake2b(lines.encode(), digest_size=8).hexdigest()
    return f"----- recording {mark} begins\n{lines}\n----- recording {mark} ends"


def _row(step: Step) -> dict[str, Any]:
    if step.role != "tool":
        return {"step": step.sequence, "by": step.role, "text": step.result}
    row: dict[str, Any] = {"step": step.sequence, "tool": step.tool, "arguments": step.arguments}
    if step.failed:
        row["error"] = step.error_message or step.error_type or "failed"
    if step.result:
        row["result"] = step.result
    return row
