"""Record a session: send what it does as events, and remember what advice and warnings are made of."""

from __future__ import annotations

import logging
import threading
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import Token
from os import getpid
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from fleetlore.advice.gate import SEVERAL
from fleetlore.advice.provenance import AdviceLedger, redact_fenced
from fleetlore.agent.action import Action, BegunCall
from fleetlore.agent.attempts import AttemptOf
from fleetlore.agent.current import OPEN_SESSION
from fleetlore.agent.lifetime import Lifetime
from fleetlore.calls.context import CallContext, normal, text_of
from fleetlore.calls.failed_call import FailedCall
from fleetlore.calls.model import Expected
from fleetlore.fingerprint.fingerprint import Failure, arguments_text, cause_of, failure_of
from fleetlore.fingerprint.names import failure_kind
from fleetlore.recall.remedies import PreconditionTracker
from fleetlore.stats.hashing import user_hash
from fleetlore.watch.safety import SafetyWatch
from fleetlore.watch.watchdog import STALL_SECONDS, Budget, Watchdog
from fleetlore.wire import events as names
from fleetlore.wire.events import Event, Kind, Outcome

if TYPE_CHECKING:
    from fleetlore.agent.fleet import Fleet
    from fleetlore.agent.session import Session

log = logging.getLogger(__name__)

__all__ = ["KEPT_CALLS", "Recording", "asked"]

_SUCCEEDED: dict[Outcome, bool | None] = {"success": True, "failure": False, "unknown": None}
KEPT_FAILED = 5  # the next attempt is told of no more
MAX_TOLD = 200  # characters of a call, and of its error
KEPT_CALLS = 32  # a risk model reads no further back (`fleetlore.risk.network.MAX_STEPS`)


class _Made(NamedTuple):
    """A call that ended, as a risk model reads it."""

    tool: str
    arguments: str
    error_type: str | None
    error_message: str | None


class Recording:
    """What a session does, sent as events and remembered. Entering it sends its start, leaving it always its end.

    Nothing here waits for anything, so `with` does as well as `async with`, and any thread may record. Before it is
    entered, after it was left and in a process forked meanwhile every method that records or asks raises NotOpen.

    It ends as the agent said (`succeed`, `fail`); else as a failure where an exception leaves it, and as unknown
    otherwise, a cancellation included: who was interrupted has not failed.

    Attributes:
        id: of the session; of a further part (`resume`) the id of that part.
        earlier: how the attempt before this one went, for the model's context; empty where there was none.
        notes: what the agent wrote down for the next attempt.
        outcome, reward: as said so far; the outcome for good once the session is left.
        calls, errors: how many calls ended so far, and how many of them failed.
    """

    def __init__(
        self,
        fleet: Fleet,
        goal: str,
        task: str = "",
        session_id: str | None = None,
        *,
        budget: Budget | None = None,
        stall_seconds: float = STALL_SECONDS,
        attempt: AttemptOf | None = None,
        earlier: str = "",
        place: str = "",
        user: str = "",
        system: str = "",
        tools: Sequence[Mapping[str, Any]] = (),
        resume: bool = False,
    ) -> None:
        self._conversation = names.checked_name("session_id", session_id) if session_id is not None and resume else ""
        if session_id is None:
            session_id = uuid.uuid4().hex
        elif resume:
            session_id = f"{session_id}.{uuid.uuid4().hex[:12]}"
        self.id = names.checked_name("session_id", session_id)
        self.goal = goal
        self.task = task
        self.place = names.checked_name("place", place) if place else ""
        self._user = user
        self._definitions = fleet.definitions.name(redact_fenced(system), tools) if system or tools else ""
        self._fleet = fleet
        self._lifetime = Lifetime(f"session {self.id}")
        self._token: Token[Session | None] | None = None
        self._warned: set[str] = set()
        self._sequence = 0
        self.outcome: Outcome = "unknown"
        self.reward: float | None = None
        self._ended_as_said = False
        self._rule = ""
        self.earlier = earlier
        self.notes: list[str] = []
        self.calls = self.errors = 0
        self._own_failures: set[str] = set()
        self._failed: FailedCall | None = None
        self._preconditions = PreconditionTracker()
        self._advice_ledger = AdviceLedger()
        self._nonce = fleet.new_nonce()
        self._held: set[tuple[str, str]] = set()
        # What tips said to use.
        self._brought: set[str] = set()
        self._watchdog = Watchdog(fleet.clock.monotonic(), budget, stall_seconds)
        self._safety = SafetyWatch(fleet.safety)
        self._last_failed: deque[str] = deque(maxlen=KEPT_FAILED)
        self._context = CallContext(goal)
        self._own_expected: deque[Expected] = deque(maxlen=KEPT_CALLS)
        self._made: deque[_Made] = deque(maxlen=KEPT_CALLS)
        self._attempt = attempt

    def __enter__(self) -> Self:
        self._fleet.begin_session(self.id)
        self._lifetime.enter()
        self._token = OPEN_SESSION.set(cast("Session", self))
        data: dict[str, Any] = {names.GOAL: redact_fenced(self.goal), names.TASK: self.task}
        known = {
            names.PLACE: self.place,
            names.USER: user_hash(self._user) if self._user else "",
            names.AGENT_GROUP: self._fleet.group,
            names.DEFINITIONS: self._definitions,
            names.CONVERSATION: self._conversation,
        }
        data |= {name: value for name, value in known.items() if value}
        if self._attempt is not None:
            data[names.ATTEMPT_GROUP], data[names.ATTEMPT] = self._attempt
        with self._locked():
            self._emit("session.started", data)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            with suppress(ValueError):  # left in another context than it was entered in
                OPEN_SESSION.reset(self._token)
        if self._lifetime.is_forked:
            return  # the parent's, which says how it ended
        if not self._ended_as_said and isinstance(error, Exception):
            self.outcome = "failure"
        with self._locked():
            self._safety.ended(_SUCCEEDED[self.outcome])
            data: dict[str, Any] = {names.OUTCOME: self.outcome}
            if self.reward is not None:
                data[names.REWARD] = self.reward
            if self._rule:
                data[names.VIOLATION] = self._rule
            if self._fleet.adapter_version is not None:
                data[names.ADAPTER] = self._fleet.adapter_version
            self._emit("session.ended", data)
            self._lifetime.leave()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    @property
    def is_open(self) -> bool:
        """Whether it was entered and not left: before and after nothing can be recorded."""
        return self._lifetime.is_open

    def __repr__(self) -> str:
        return f"<Session {self.id} of {self._fleet.agent}, {self._lifetime}: {self.calls} calls, {self.errors} failed>"

    def warn(self, mistake: str) -> None:
        """Log a mistake of the agent's code that costs it what it meant to record; each once a session."""
        if mistake not in self._warned:
            self._warned.add(mistake)
            log.warning("session %s: %s", self.id, mistake)

    def _locked(self) -> threading.RLock:
        """The fleet's lock, for a `with`. Raises NotOpen: what is not open may record and ask nothing."""
        if self._lifetime.open_in != getpid():  # in line, for advice is asked for before every call
            self._lifetime.check()
        return self._fleet.lock

    def action(self, tool: str, arguments: object = None, *, call_id: str = "") -> Action:
        """A tool call about to be made: a context manager around it.

        Args:
            arguments: an object of JSON values, or text.
            call_id: as given to `advise`.
        """
        self._lifetime.check()
        return Action(self, tool, arguments, call_id)

    def begin(self, tool: str, arguments: object = None, *, call_id: str = "") -> Action:
        """Record that a tool call begins, where it ends in another function: call `end` on what this returns."""
        return self.action(tool, arguments, call_id=call_id).begin()

    def record(
        self,
        tool: str,
        arguments: object = None,
        *,
        result: object = None,
        error: BaseException | None = None,
        error_text: str | None = None,
        duration_seconds: float | None = None,
        call_id: str = "",
    ) -> None:
        """Record a tool call that is over; the arguments are those of `begin` and `Action.end`."""
        action = self.begin(tool, arguments, call_id=call_id)
        action.end(result, error=error, error_text=error_text, duration_seconds=duration_seconds)

    def spend(self, *, tokens: float = 0.0, money: float = 0.0) -> None:
        """Say what a step of the agent used, for the warnings of the session's budget. Time is counted by itself."""
        with self._locked():
            self._watchdog.spend(tokens, money)

    def message(self, role: str, text: str) -> None:
        """Record a message of a person or the model between two calls."""
        text = str(text)
        with self._locked():
            self._emit("message", {names.ROLE: role, names.CONTENT: self._advice_ledger.redact_shown(text)})

    def succeed(self, reward: float | None = None) -> None:
        """Say that the goal was reached; `reward` where the environment gave one."""
        self._end("success", reward)

    def fail(self, reward: float | None = None) -> None:
        """Say that the goal was missed; `reward` where the environment gave one."""
        self._end("failure", reward)

    def forbid(self, rule: str) -> None:
        """Report a broken rule that was found after the calls: the session is then no success, whatever its reward."""
        self._lifetime.check()
        self._rule = str(rule)[: names.MAX_RULE]

    def note(self, text: str) -> None:
        """Write down for the next attempt at this goal (`sequential`)."""
        self.notes.append(text)

    @property
    def last_failed(self) -> tuple[str, ...]:
        """The last calls that failed, at most five and the oldest first: the call's number, the call and its error."""
        return tuple(self._last_failed)

    @property
    def loops(self) -> int:
        """How often the session has got into a loop."""
        return self._watchdog.loops

    def _end(self, outcome: Outcome, reward: float | None) -> None:
        self._lifetime.check()
        if self._ended_as_said:
            self.warn("how it ended is said a second time: the last word counts")
        self.outcome, self.reward, self._ended_as_said = outcome, names.fitting_reward(reward), True
        if reward is not None and self.reward is None:
            self.warn(f"{reward!r} is no reward, which is a finite number: it is left out")

    def _emit(self, kind: Kind, data: dict[str, Any], *, at_once: bool = False) -> None:
        fleet = self._fleet
        self._watchdog.saw_event(fleet.clock.monotonic())
        event = Event(kind, fleet.tenant, fleet.agent, self.id, self._sequence, fleet.clock.now(), data)
        # A number is only used up by an event that was accepted: a drop must not look like an event that got lost
        # later.
        if fleet.emitter.emit(event, at_once=at_once):
            self._sequence += 1

    def _is_new(self, failure: Failure) -> bool:
        """Whether no agent, as far as known here, met this failure: others may be about to make the same call."""
        known = self._fleet.replica.index.patterns
        return failure.exact not in known and failure.exact not in self._own_failures and not failure.transient

    def begin_call(self, action: Action) -> BegunCall:
        """Send that a call begins and claim the advice that it follows. `Action` does this when it begins."""
        text = arguments_text(action.arguments)
        with self._locked():
            self._fleet.replica.uses(action.tool)
            adapter = self._fleet.adapters.action_opens()
            advice, withheld, cited = self._advice_ledger.take(asked(action.call_id, action.tool, text))
            recorded = self._advice_ledger.redact_shown(action.arguments)
            self._emit("action", {names.TOOL: action.tool, names.ARGUMENTS: recorded})
        followed = {names.ADVICE: advice, names.WITHHELD: withheld, names.CITED: cited, names.ADAPTER: adapter}
        followed = {name: value for name, value in followed.items() if value}
        return BegunCall(text, recorded, followed, self._fleet.clock.monotonic())

    def end_call(
        self, action: Action, call: BegunCall, *, cancelled: bool = False, duration_seconds: float | None = None
    ) -> None:
        """Send how a call ended and remember it. `Action` does this when it ends.

        Args:
            cancelled: it was interrupted, by the agent's own time-out or by a person: how it would have ended is not
                known, and nothing is said of it.
            duration_seconds: since it began, where that is not what the clock says.
        """
        if not cancelled and not self.is_open:
            self.warn(f"a call of {action.tool} ended after the session, and how it ended is not recorded")
        if self._lifetime.is_forked:
            return
        with self._fleet.lock:
            if not cancelled and self.is_open:
                if duration_seconds is None:
                    duration_seconds = self._fleet.clock.monotonic() - call.started
                self._send_outcome(action, call, duration_seconds)
            self._fleet.adapters.action_closes()

    def _send_outcome(self, action: Action, call: BegunCall, duration_seconds: float) -> None:
        data: dict[str, Any] = {
            names.TOOL: action.tool,
            names.ARGUMENTS: call.recorded,
            names.DURATION: round(duration_seconds, 6),
        }
        if self._fleet.group:
            data[names.AGENT_GROUP] = self._fleet.group
        if action.rule:
            action.error = names.guarded(action.rule)
            data[names.VIOLATION] = action.rule
        failure = None
        if action.error is not None:
            error_type, message = action.error
            # As workers will read it, or what the fleet knows of this failure would have another name.
            recorded, message, personal = call.recorded, redact_fenced(message), self._fleet.personal
            if personal is not None:
                recorded, message = personal.masked_text(arguments_text(recorded)), personal.masked_text(message)
            data[names.ERROR_TYPE], data[names.ERROR_MESSAGE] = error_type, message
            failure = failure_of(action.tool, recorded, error_type, message)
        elif action.result is not None:
            data[names.RESULT] = redact_fenced(action.result)
        is_new = failure is not None and self._is_new(failure)
        self._remember(action, call, failure)
        self._emit("outcome", data | call.followed, at_once=is_new)

    def _remember(self, action: Action, call: BegunCall, failure: Failure | None) -> None:
        tool, error = action.tool, action.error
        result = arguments_text(action.result)  # once for both
        self.calls += 1
        if error is not None:
            self.errors += 1
            told = f"{tool}({call.text[:MAX_TOLD]}) failed: {error[0]}: {error[1][:MAX_TOLD]}"
            self._last_failed.append(f"call {self.calls}: {told}")
        self._watchdog.took_place(tool, call.text, result, (error[1] or error[0]) if error else None)
        self._safety.took_place(tool, action.arguments, failed=failure is not None)
        text = text_of(call.text)
        said = error[1] or error[0] if error else result
        self._context.record(tool, text, said, failure and failure.family, arguments=call.text)
        if failure is not None:
            kind = failure_kind(failure.error_class, failure.template, error[1] if error else "", text)
            # What the session itself met may be said to it.
            self._own_expected.append(Expected(kind.kind, kind.names, agents=SEVERAL))
        if self._fleet.risk_model is not None:
            error_class = failure.error_class if failure else None
            self._made.append(_Made(tool, call.text, error_class, error[1] if error else None))
        lasting = failure if failure is not None and not failure.transient else None
        if failure is None or lasting is not None:
            cause = cause_of(lasting, call.recorded) if lasting is not None else None
            self._preconditions.record_call(tool, action.arguments, cause)
        if failure is not None:
            self._own_failures.add(failure.exact)
            seen = self._context.seen | self._context.worked
            cause, marks = cause_of(failure, call.recorded), tuple(self._context.objects.marks(call.text))
            known = (
                call.text,
                marks,
                self._context.quantities.of(call.text),
                self._context.tried[normal(tool, call.text)],
            )
            self._failed = FailedCall(text, said, failure, self.goal, self.id, seen, cause, *known)
        elif self._failed is not None and self._failed.failure.tool == tool:
            self._failed = None


def asked(call_id: str, tool: str | None, arguments: object) -> str:
    """What advice was asked about: a call by its id, else by what it is; nothing for the session as a whole."""
    if tool is None:
        return ""
    return f"id\x1f{call_id}" if call_id else f"{tool}\x1f{arguments_text(arguments)}"
