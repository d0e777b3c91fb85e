"""Distil a lesson: a failed session's error, after which the tool never worked again.

What one session tried in vain is its own; the lesson is what sessions of several goals tried. A session that met the
error and succeeded contradicts it, and names the recovery it taught instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fleetlore.fingerprint.literals import masked_arguments
from fleetlore.wire.trajectory import Step, Trajectory
from models.distil.formatting import VERSION, Calls, call_text, error_text, item_id, known_of, line
from models.memory.candidate import SEVERAL_GOALS, Candidate, origin
from models.memory.quality import ERROR

# What one session tried; what several tried is said.
MAX_TRIED = 8
_PLACEHOLDER = re.compile(r"<[^<>]*>")


def lessons(trajectory: Trajectory, calls: Calls, telling: list[int]) -> list[Candidate]:
    """The last error that a failed session did not get past."""
    for index in reversed(telling):
        failed = calls[index]
        if not any(call.tool == failed.tool and not call.failed for call in calls[index:]):
            return [_lesson(trajectory, calls, failed)]
    return []


def _lesson(trajectory: Trajectory, calls: Calls, failed: Step) -> Candidate:
    tool, error, known = failed.tool, error_text(failed), known_of(failed)
    attempts = [call for call in calls if call.pattern == failed.pattern]
    told = [
        call_text(call, known=known) for call in attempts if not _is_masked(masked_arguments(call.arguments, known))
    ]
    tried = list(dict.fromkeys(told))[:MAX_TRIED]
    return Candidate(
        **origin(trajectory),
        item_id=item_id(trajectory.tenant, "lesson", failed.pattern or ""),
        kind="lesson",
        side="failure",
        rank=(),
        delayed=True,
        # What a single task met and did not get past may be that task's.
        least_goals=SEVERAL_GOALS,
        title=line(f"{tool}: {error}", 160),
        description=f"Sessions failed in which {tool} met this error and did not work again.",
        content=f"{ERROR}{error}",
        when=f"before a call like {call_text(failed, known=known)}",
        tool=tool,
        pattern=failed.pattern,
        call=failed.call,
        calls=tuple(tried),
        aspect="tried",
        version=VERSION,
    )


def _is_masked(value: Any) -> bool:
    """Whether nothing of the arguments is left that others could try."""
    if isinstance(value, dict):
        return all(map(_is_masked, value.values()))
    if isinstance(value, list):
        return all(map(_is_masked, value))
    return isinstance(value, str) and _PLACEHOLDER.fullmatch(value) is not None


def contradicted(
    trajectory: Trajectory, calls: Calls, telling: list[int], recoveries: Sequence[Candidate]
) -> list[Candidate]:
    """A successful session's contradictions of the lessons about its errors.

    They also withdraw its own lesson, if it was judged a failure before a correction.
    """
    instead = {each.pattern: each.item_id for each in recoveries if each.side == "success"}
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
