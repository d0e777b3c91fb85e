"""Find in a session the failures that it got past, and what it lacked to do so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from fleetlore.calls.context import CALL_CHARACTERS, KEYWORDS, RESULT_CHARACTERS, text_of, words_of
from fleetlore.calls.failed_call import FailedCall
from fleetlore.fingerprint.fingerprint import failure_of
from fleetlore.wire.trajectory import Step, Trajectory


class Case(NamedTuple):
    """A failure that a session got past.

    Attributes:
        failed: as the agent asks about it.
        place, worked: of the call that failed and of the one that worked, among the session's calls.
        lacks: words of that call that the session had not seen.
    """

    failed: FailedCall
    place: int
    worked: int
    lacks: frozenset[str]


def _got_past(failed: Step, call: Step) -> bool:
    return call.tool == failed.tool and not call.failed


def cases(session: Trajectory, got_past: Callable[[Step, Step], bool] = _got_past) -> Iterator[Case]:
    """The ways out of a session, each after the first failure that led to it.

    Args:
        got_past: whether a later call got past a failed one.
    """
    calls, taken = session.calls, set[int]()
    seen = words_of(session.goal, CALL_CHARACTERS)
    for place, step in enumerate(calls):
        made, said = text_of(step.arguments), said_by(step)
        known = words_of(made, CALL_CHARACTERS) | words_of(said, RESULT_CHARACTERS)
        if step.failed and not step.transient:
            later = next((other for other in range(place + 1, len(calls)) if got_past(step, calls[other])), None)
            if later is not None and later not in taken:
                taken.add(later)
                lacks = words_of(text_of(calls[later].arguments), CALL_CHARACTERS) - seen - known - KEYWORDS
                failure = failure_of(step.tool, step.arguments, step.error_type, step.error_message)
                if lacks:
                    failed = FailedCall(made, said, failure, session.goal, session.session, frozenset(seen))
                    yield Case(failed, place, later, frozenset(lacks))
        seen |= known


def said_by(step: Step) -> str:
    """What the environment said to a call."""
    return step.error_message or step.error_type or "" if step.failed else step.result
