"""Send what a session does as events: numbered, in order, and without the words that it was shown."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from fleetlore.advice.provenance import AdviceLedger, redact_fenced
from fleetlore.agent.action import Action, BegunCall
from fleetlore.calls.call import MadeCall
from fleetlore.fingerprint.fingerprint import Failure, arguments_text, failure_of
from fleetlore.stats.hashing import user_hash
from fleetlore.watch.watchdog import STALL_SECONDS, Budget, Watchdog
from fleetlore.wire import events as names
from fleetlore.wire.events import Event, Kind, Outcome

if TYPE_CHECKING:
    from fleetlore.agent.fleet import Fleet

__all__ = ["SessionEvents", "SessionOptions", "arguments_of"]

Arguments = ParamSpec("Arguments")
Given = TypeVar("Given")


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The arguments of `Fleet.session`.

    Attributes:
        goal: the goal in words.
        task: name of the kind of task. Sessions of one task are compared with each other.
        session_id: 1–256 printable characters, unique in the tenant. By default it is generated. ConfigError if this
            fleet has already entered a session with this id.
        budget: limits of its use. Advice warns at 80 % and at 100 %, but the session is never stopped.
        stall_seconds: after this long without an event advice says that the session stands still.
        place: where it acts: a database, a repository, a host, an account. Names that calls there can refer to are
            remembered under this name of 1–256 printable characters.
        user: whom it acts for, by any stable name. Only a hash of it is sent, so that `fleetlore erase --user` finds
            the session.
        resume: whether `session_id` may have begun elsewhere or before. This session is then a further part of it: its
            own id begins with `session_id`, and it names that as its conversation.
    """

    goal: str
    task: str = ""
    session_id: str | None = None
    _: KW_ONLY
    budget: Budget | None = None
    stall_seconds: float = STALL_SECONDS
    place: str = ""
    user: str = ""
    resume: bool = False


def arguments_of(
    made: Callable[Arguments, object],
) -> Callable[[Callable[..., Given]], Callable[Concatenate[Any, Arguments], Given]]:
    """Give a method the arguments of a class, so that the two cannot differ."""

    def decorate(method: Callable[..., Given]) -> Callable[Concatenate[Any, Arguments], Given]:
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        returned = inspect.signature(method).return_annotation
        parameters = [own, *inspect.signature(made).parameters.values()]
        method.__signature__ = inspect.Signature(parameters, return_annotation=returned)  # type: ignore[attr-defined]
        return method

    return decorate


class SessionEvents:
    """The events of one session.

    The fleet's lock is held by the caller. Events have `[fleet-memory]` in place of advice in `ledger`. `session`: id
    of the session, or of the part if it continues another (`resume`).
    """

    def __init__(self, fleet: Fleet, options: SessionOptions, ledger: AdviceLedger, watchdog: Watchdog) -> None:
        self.session, self._conversation = _ids(options)
        self._fleet, self._options, self._ledger, self._watchdog = fleet, options, ledger, watchdog
        self._sequence = 0

    def start(self) -> None:
        given = self._options
        data: dict[str, Any] = {names.GOAL: redact_fenced(given.goal), names.TASK: given.task}
        data |= _known(
            {
                names.PLACE: given.place,
                names.USER: user_hash(given.user) if given.user else "",
                names.CONVERSATION: self._conversation,
            }
        )
        self._emit("session.started", data)

    def end(self, outcome: Outcome, reward: float | None, rule: str) -> None:
        """Send how the session ended. `rule`: that it broke; empty for none."""
        data: dict[str, Any] = {names.OUTCOME: outcome}
        if reward is not None:
            data[names.REWARD] = reward
        data |= _known({names.VIOLATION: rule, names.ADAPTER: self._fleet.adapter_version})
        self._emit("session.ended", data)

    def message(self, role: str, text: str) -> None:
        self._emit("message", {names.ROLE: role, names.CONTENT: self._ledger.redact_shown(text)})

    def begin_call(self, action: Action) -> BegunCall:
        """Claim the advice that a call follows."""
        made = MadeCall(action.tool, action.arguments)
        advice, withheld = self._ledger.take(made.key(action.call_id))
        recorded = self._ledger.redact_shown(action.arguments)
        followed = {names.ADVICE: advice, names.WITHHELD: withheld, names.ADAPTER: self._fleet.adapter_version}
        call = BegunCall(made, recorded, _known(followed), self._fleet.clock.monotonic())
        self._watchdog.saw_event(call.started)
        return call

    def end_call(
        self, action: Action, call: BegunCall, duration_seconds: float, met: Collection[str]
    ) -> Failure | None:
        """Send how a call ended; return its failure.

        `met`: patterns that the session has met. One that no agent met is sent at once: others may be about to make the
        same call.
        """
        data: dict[str, Any] = {names.TOOL: action.tool, names.ARGUMENTS: call.recorded}
        if duration_seconds:  # 0 if its beginning is unknown
            data[names.DURATION] = round(duration_seconds, 6)
        if action.rule:
            action.error = names.guarded(action.rule)
        data |= _known({names.VIOLATION: action.rule})
        failure = None
        if action.error is not None:
            error_type, message = action.error
            # Read it as workers do. Otherwise this failure would not match the fleet's patterns.
            recorded, message, personal = call.recorded, redact_fenced(message), self._fleet.personal
            if personal is not None:
                recorded, message = personal.masked_text(arguments_text(recorded)), personal.masked_text(message)
            data[names.ERROR_TYPE], data[names.ERROR_MESSAGE] = error_type, message
            failure = failure_of(action.tool, recorded, error_type, message)
        elif action.result is not None:
            data[names.RESULT] = redact_fenced(action.result)
        is_new = failure is not None and not failure.transient and failure.exact not in met
        is_news = is_new and failure is not None and failure.exact not in self._fleet.replica.index.patterns
        self._emit("outcome", data | call.followed, at_once=is_news)
        return failure

    def _emit(self, kind: Kind, data: dict[str, Any], *, at_once: bool = False) -> None:
        fleet = self._fleet
        self._watchdog.saw_event(fleet.clock.monotonic())
        event = Event(kind, fleet.tenant, fleet.agent, self.session, self._sequence, fleet.clock.now(), data)
        # A number is only used up by an event that was accepted: a drop must not look like an event that got lost
        # later.
        if fleet.emitter.emit(event, at_once=at_once):
            self._sequence += 1


def _ids(options: SessionOptions) -> tuple[str, str]:
    if options.session_id is None:
        return uuid.uuid4().hex, ""
    given = names.checked_name("session_id", options.session_id)
    if not options.resume:
        return given, ""
    return names.checked_name("session_id", f"{given}.{uuid.uuid4().hex[:12]}"), given


def _known(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value}
