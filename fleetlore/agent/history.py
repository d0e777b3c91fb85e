"""Remember what the calls of a session met: what advice is made of."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from fleetlore.advice.gate import SEVERAL
from fleetlore.calls.context import CallContext, normal, text_of
from fleetlore.calls.failed_call import FailedCall
from fleetlore.calls.model import Expected
from fleetlore.fingerprint.fingerprint import Failure, cause_of
from fleetlore.fingerprint.names import failure_kind
from fleetlore.recall.remedies import PreconditionTracker

if TYPE_CHECKING:
    from fleetlore.agent.action import Action, BegunCall

__all__ = ["CallHistory"]

_KEPT_CALLS = 32
_KEPT_FAILED = 5  # the next attempt is told of no more
MAX_TOLD = 200  # characters of a call, and of its error


class CallHistory:
    """What the calls of one session met, those that ended only.

    Attributes:
        calls, errors: how many calls ended so far, and how many of them failed.
        last_failed: the last calls that failed, in words, the oldest first.
        failures: ids of the exact patterns that were met.
        failed: the call that failed last, as long as no call of its tool has worked since.
        expected: what failed, as the call model names it.
    """

    def __init__(self, goal: str, session: str) -> None:
        self.calls = self.errors = 0
        self.last_failed: deque[str] = deque(maxlen=_KEPT_FAILED)
        self.failures: set[str] = set()
        self.failed: FailedCall | None = None
        self.expected: deque[Expected] = deque(maxlen=_KEPT_CALLS)
        self.preconditions = PreconditionTracker()
        self.context = CallContext(goal)
        self._goal, self._session = goal, session

    def record(self, action: Action, call: BegunCall, result: str, failure: Failure | None) -> None:
        """Take in a call that ended. `result`: as text; `failure`: None where it worked."""
        tool, error = action.tool, action.error
        said = (error[1] or error[0]) if error else result
        text = text_of(call.text)
        self.calls += 1
        self.context.record(tool, text, said, failure and failure.family, arguments=call.text)
        if failure is not None and error is not None:
            self._record_failure(action, call, error, failure)
            return
        self.preconditions.record_call(tool, action.arguments, None)
        if self.failed is not None and self.failed.failure.tool == tool:
            self.failed = None

    def _record_failure(self, action: Action, call: BegunCall, error: tuple[str, str], failure: Failure) -> None:
        text, (kind, message) = text_of(call.text), error
        self.errors += 1
        self.last_failed.append(
            f"call {self.calls}: {action.tool}({call.text[:MAX_TOLD]}) failed: {kind}: {message[:MAX_TOLD]}"
        )
        self.failures.add(failure.exact)
        known = failure_kind(failure.error_class, failure.template, message, text)
        # What the session itself met may be said to it.
        self.expected.append(Expected(known.kind, known.names, agents=SEVERAL))
        cause, context = cause_of(failure, call.recorded), self.context
        if not failure.transient:
            self.preconditions.record_call(action.tool, action.arguments, cause)
        self.failed = FailedCall(
            text,
            message or kind,
            failure,
            self._goal,
            self._session,
            context.seen | context.worked,
            cause,
            call.text,
            tuple(context.objects.marks(call.text)),
            context.quantities.of(call.text),
            context.tried[normal(action.tool, call.text)],
        )
