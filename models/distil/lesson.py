"""Distil a lesson: a failed session's error, after which the tool never worked again.

A session that met the error and succeeded contradicts the lesson, and names the recovery it taught instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from fleetlore.wire.trajectory import Step, Trajectory
from models.distil.formatting import (
    MAX_CALL,
    MAX_ERROR,
    MAX_GOAL,
    MAX_STEP,
    VERSION,
    Calls,
    call_text,
    error_text,
    item_id,
    line,
)
from models.memory.candidate import Candidate, origin
from models.memory.quality import ERROR, TRIED

MAX_TRIED = 3


def lessons(trajectory: Trajectory, calls: Calls, telling: list[int]) -> list[Candidate]:
    """The last error that a failed session did not get past."""
    for index in reversed(telling):
        failed = calls[index]
        if not any(call.tool == failed.tool and not call.failed for call in calls[index:]):
            return [_lesson(trajectory, calls, failed)]
    return []


def _lesson(trajectory: Trajectory, calls: Calls, failed: Step) -> Candidate:
    tool, error = failed.tool, error_text(failed)
    attempts = [call for call in calls if call.pattern == failed.pattern]
    tried = list(islice(dict.fromkeys([call.arguments for call in attempts]), MAX_TRIED))
    said = line(failed.result, MAX_ERROR)
    content = [f"Goal: {line(trajectory.goal, MAX_GOAL)}", f"{ERROR}{error}"]
    content += [f"The tool said: {said}"] if said and said not in error and error not in said else []
    content += [f"{TRIED}{tool}({line(arguments, MAX_CALL)})" for arguments in tried]
    again = f"{len(attempts)} attempts" if len(tried) > 1 else f"The same call {len(attempts)} times"
    repeated = f" {again} did not help." if len(attempts) > 1 else ""
    return Candidate(
        **origin(trajectory),
        item_id=item_id(trajectory.tenant, "lesson", failed.pattern or ""),
        kind="lesson",
        side="failure",
        # The best example shows the most calls that do not help.
        rank=(-len(tried), len(attempts)),
        title=line(f"{tool}: {error}", 160),
        description=f"Sessions failed on this error and never got {tool} to work again.{repeated}",
        content="\n".join(content),
        when=f"before a call like {call_text(failed, MAX_STEP)}",
        tool=tool,
        pattern=failed.pattern,
        call=failed.call,
        version=VERSION,
    )


def contradicted(
    trajectory: Trajectory, calls: Calls, telling: list[int], recoveries: Sequence[Candidate]
) -> list[Candidate]:
    """A successful session's contradictions of the lessons about its errors.

    They also withdraw its own lesson, if it was judged a failure before a correction.
    """
    instead = {each.pattern: each.item_id for each in recoveries}
    return [
        Candidate(
            **origin(trajectory),
            item_id=item_id(trajectory.tenant, "lesson", pattern),
            kind="lesson",
            side="success",
            rank=(int(pattern not in instead),),
            instead=instead.get(pattern, ""),
            version=VERSION,
        )
        for pattern in dict.fromkeys([calls[index].pattern or "" for index in telling])
    ]
