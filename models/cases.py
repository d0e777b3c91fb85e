"""Find the failed calls of a session that something can be learned from, and the later calls that worked.

All that learns from failures starts here: recoveries, names that were looked up, look-ups, programs, pairs for
training.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetlore.wire.trajectory import Judgment, Step
from models.memory.candidate import SUCCESS_ABOVE
from models.memory.quality import is_verdict

__all__ = ["is_shown_to_work", "telling", "tells", "worked_after"]


def tells(call: Step) -> bool:
    """Whether a call failed and its error says what is wrong, and not only that it failed."""
    return call.failed and not is_verdict(call.tool, call.error_message or "", call.error_type)


def telling(calls: Sequence[Step]) -> list[int]:
    """Places of the calls whose error tells and does not pass by itself."""
    known: dict[str, bool] = {}
    found = []
    for place, call in enumerate(calls):
        if call.pattern is not None and not call.transient:
            if call.pattern not in known:  # a stuck agent repeats one error
                known[call.pattern] = tells(call)
            if known[call.pattern]:
                found.append(place)
    return found


def worked_after(calls: Sequence[Step], place: int, tool: str | None = None) -> Iterator[int]:
    """Places of the later calls that did not fail, in order; where a tool is given, of that tool alone."""
    for later in range(place + 1, len(calls)):
        call = calls[later]
        if not call.failed and (tool is None or call.tool == tool):
            yield later


def is_shown_to_work(judgment: Judgment, call: Step) -> bool:
    """Whether something shows that the call worked: a result, a later step, or that the session succeeded.

    No result at the very last step is no evidence: the log may end before the answer.
    """
    shown = bool(call.result) or call is not judgment.trajectory.steps[-1]
    return not call.failed and (shown or judgment.verdict.probability > SUCCESS_ABOVE)
