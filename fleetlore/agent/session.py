"""One attempt at a goal and the tool calls in it, as an agent holds them. They are made by `Fleet.session`."""

from __future__ import annotations

import re
import uuid
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from fleetlore.agent.attempts import AttemptOf
from fleetlore.calls.context import CallContext, text_of
from fleetlore.calls.model import CallModel, Expected
from fleetlore.errors import ConfigError
from fleetlore.fingerprint.fingerprint import Failure, arguments_text, cause_of, failure_of, kind_of
from fleetlore.fingerprint.names import failure_kind
from fleetlore.recall.advice import MAX_CHARS, MAX_ITEMS, Advice, Caution, Situation, advise, told_by
from fleetlore.recall.hints import hint_text
from fleetlore.recall.holdout import withheld
from fleetlore.recall.provenance import AdviceLedger, redact_fenced
from fleetlore.recall.remedies import PreconditionTracker
from fleetlore.recall.render import fitting, shown_lines
from fleetlore.recall.ways_out import FailedCall, is_own
from fleetlore.store.search import SEARCH_SECONDS
from fleetlore.watch.credit import blame
from fleetlore.watch.episode import RecentStep, RecentSteps
from fleetlore.watch.safety import SafetyWatch
from fleetlore.watch.watchdog import STALL_SECONDS, Budget, Watchdog
from fleetlore.wire import events as names
from fleetlore.wire.events import Event, Kind, Outcome
from fleetlore.wire.lore import MemoryItem

if TYPE_CHECKING:  # torch comes with the extra [adapters]
    from fleetlore.agent.fleet import Fleet
    from fleetlore.risk.model import Outlook, Risk

__all__ = ["Action", "Session", "checked_name"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

_SUCCEEDED: dict[Outcome, bool | None] = {"success": True, "failure": False, "unknown": None}
# Items of a search: what is asked for is read, where advice comes unasked.
RECALLED = 5
_KEPT_CALLS = 32  # a risk model reads no further back (`fleetlore.risk.network.MAX_STEPS`)


class _Made(NamedTuple):
    """A call that ended, as a risk model reads it."""

    tool: str
    arguments: str
    error_type: str | None
    error_message: str | None


class _BegunCall(NamedTuple):
    """A call under way.

    Attributes:
        text: its arguments as text.
        recorded: its arguments as the events have them.
        followed: what its outcome names: advice, what was withheld or cited, and the adapter.
    """

    text: str
    recorded: object
    followed: dict[str, Any]
    started: float


class Session:
    """One attempt at a goal. Entering it sends its start; leaving it sends its end, always.

    It ends as the agent said (`succeed`, `fail`); else as a failure where an exception leaves it, and as unknown
    otherwise, a cancellation included: who was interrupted has not failed.

    Attributes:
        earlier: how the attempt before this one went, for the model's context; empty where there was none.
        notes: what the agent wrote down for the next attempt.
        outcome, reward: as said so far; the outcome for good once the session is left.
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
    ) -> None:
        self.id = uuid.uuid4().hex if session_id is None else checked_name("session_id", session_id)
        self.goal = goal
        self.task = task
        self.place = checked_name("place", place) if place else ""
        self._fleet = fleet
        self._sequence = 0
        self.outcome: Outcome = "unknown"
        self.reward: float | None = None
        self._ended_as_said = False
        self._rule = ""
        self.earlier = earlier
        self.notes: list[str] = []
        self._own_failures: set[str] = set()
        self._failed: FailedCall | None = None
        self._preconditions = PreconditionTracker()
        self._advice_ledger = AdviceLedger()
        self._watchdog = Watchdog(fleet.clock.monotonic(), budget, stall_seconds)
        self._safety = SafetyWatch(fleet.safety)
        self._recent_steps = RecentSteps()
        self._context = CallContext(goal)
        self._own_expected: deque[Expected] = deque(maxlen=_KEPT_CALLS)
        self._recognised: tuple[CallModel, int, str | None] | None = None
        self._made: deque[_Made] = deque(maxlen=_KEPT_CALLS)
        self._attempt = attempt

    async def __aenter__(self) -> Self:
        data: dict[str, Any] = {names.GOAL: redact_fenced(self.goal), names.TASK: self.task}
        if self.place:
            data[names.PLACE] = self.place
        if self._attempt is not None:
            data[names.ATTEMPT_GROUP], data[names.ATTEMPT] = self._attempt
        self._emit("session.started", data)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._ended_as_said and isinstance(error, Exception):
            self.outcome = "failure"
        self._safety.ended(_SUCCEEDED[self.outcome])
        data: dict[str, Any] = {names.OUTCOME: self.outcome}
        if self.reward is not None:
            data[names.REWARD] = self.reward
        if self._rule:
            data[names.VIOLATION] = self._rule
        if self._fleet.adapter_version is not None:
            data[names.ADAPTER] = self._fleet.adapter_version
        self._emit("session.ended", data)

    def action(self, tool: str, arguments: object = None, *, call_id: str = "") -> Action:
        """A tool call about to be made: an async context manager around it.

        Args:
            arguments: an object of JSON values, or text.
            call_id: as given to `advise`.
        """
        return Action(self, tool, arguments, call_id)

    def advise(
        self,
        tool: str | None = None,
        arguments: object = None,
        *,
        call_id: str = "",
        unseen: bool = True,
        most: int = MAX_ITEMS,
        max_chars: int = MAX_CHARS,
    ) -> Advice:
        """What the fleet knows about a call that is about to be made, or without one about the task. No network.

        Mostly nothing: before a call one line where it will likely fail; after a failure at most one way out, until a
        call of the same tool works; at the start what tells success from failure at the task.

        Args:
            call_id: of the call, as a model's API gives it, where several calls run side by side.
            unseen: leave out what the session was told before. An agent that keeps no context takes False.
            most: memory items at the most. More is not better: what is recalled without need misleads.
            max_chars: of the text; what is least important is left out.
        """
        cautions = self.cautions() if tool is None else (*self.cautions(), *self._safety.cautions(tool, arguments))
        return self._advise(tool, arguments, (), _asked(call_id, tool, arguments), cautions, unseen, most, max_chars)

    def brief(
        self, tools: Sequence[str] = (), *, unseen: bool = True, most: int = MAX_ITEMS, max_chars: int = MAX_CHARS
    ) -> Advice:
        """What to tell a model before it chooses a call: about the task, and of the tools that it may call what they
        need first and which of them have a passing fault. The other arguments are those of `advise`.

        Args:
            tools: names of the tools that it may call.
        """
        return self._advise(None, None, tuple(tools), "", self.cautions(), unseen, most, max_chars)

    def _advise(
        self,
        tool: str | None,
        arguments: object,
        tools: tuple[str, ...],
        asked: str,
        cautions: tuple[Caution, ...],
        unseen: bool,
        most: int,
        max_chars: int,
    ) -> Advice:
        self._fleet.check_lore()
        model, ledger = self._fleet.call_model, self._advice_ledger
        advice = advise(
            self._fleet.replica.index,
            Situation(
                tool,
                arguments,
                tools=tools,
                now=self._fleet.clock.now(),
                task=self.task,
                goal=self.goal,
                session=self.id,
                own_failures=self._own_failures,
                failed=self._failed,
                loop=self._watchdog.loop,
                preconditions=self._preconditions,
                model=model,
                context=self._context,
                place=self._place(model),
                own=self._own_expected,
                told=ledger.told if unseen else (),
            ),
            holdout_share=self._fleet.settings.holdout_share,
            most=most,
        )
        introduced = unseen and bool(ledger.told)
        if unseen:
            # Of a dangerous call it is warned each time.
            cautions = tuple(
                [each for each in cautions if each.id.startswith("safety:") or each.key not in ledger.told]
            )
        advice = fitting(advice._replace(cautions=cautions, introduced=introduced), max_chars)
        lines = [line for item in advice.items for line in shown_lines(item.title, item.content)]
        if advice.way_out is not None:
            lines += shown_lines(advice.way_out.text, "")
        ledger.show(asked, advice.ids, advice.withheld, lines)
        ledger.told.update(told_by(advice))
        return advice

    async def recall(
        self, text: str, most: int = RECALLED, *, timeout_seconds: float = SEARCH_SECONDS
    ) -> list[MemoryItem]:
        """Search all that the fleet's store holds for a text: a goal, an error, a question. The best match first.

        Advice is looked up in what the agent's own memory holds; this asks Milvus (`FLEETLORE_MILVUS`, or that of
        `data=`), for a tenant that knows more. Like advice it leaves out what the session alone has taught, withholds a
        share at random, and is credited with the outcome. The items are data from other sessions, not instruction.

        Args:
            most: items at the most, the withheld ones among them.
            timeout_seconds: after so long it gives up.

        Raises:
            ModelUnavailable: the extra `[recall]` is not installed.
            ConfigError: no worker has written to the store yet, or one of an earlier version.
            StoreUnavailable: Milvus does not answer within the time.
        """
        found = await self._fleet.lore_search.items(text, least=most, timeout_seconds=timeout_seconds)
        chosen = [item for _, item in found if not is_own(item, self.id)][:most]
        share = self._fleet.settings.holdout_share
        kept_back = [item for item in chosen if item.kind != "fact" and withheld(self.id, item.id, share)]
        shown = [item for item in chosen if item not in kept_back]
        ids, lines = (
            [item.id for item in shown],
            [line for item in shown for line in shown_lines(item.title, item.content)],
        )
        self._advice_ledger.show("", tuple(ids), tuple(item.id for item in kept_back), lines)
        self._advice_ledger.told.update(ids)
        return shown

    def outlook(self, calls: Sequence[tuple[str, object]]) -> list[Outlook | None]:
        """What the adapter in use foresees of calls (tool, arguments) that may come next. No network; some 2 ms for
        eight.

        None for a call that it cannot tell anything of, and for all where the fleet was opened without `adapters=True`.
        """
        risk_model = self._fleet.risk_model
        return [None] * len(calls) if risk_model is None else risk_model.outlook(list(self._made), self.goal, calls)

    def risk(self, tool: str, arguments: object = None) -> Risk | None:
        """A warning where the adapter in use holds that a call will rather fail, with the failure that it looks like
        and what the fleet says about that; None where it does not, or cannot tell.
        """
        risk_model = self._fleet.risk_model
        return None if risk_model is None else risk_model.risk(list(self._made), self.goal, tool, arguments, self._hint)

    def cautions(self) -> tuple[Caution, ...]:
        """What the session itself gives cause to warn of now: a budget that runs out, a standstill. Also part of
        advice.

        For whoever watches over an agent that does not ask.
        """
        return self._watchdog.cautions(self._fleet.clock.monotonic())

    def spend(self, *, tokens: float = 0.0, money: float = 0.0) -> None:
        """Say what a step of the agent used, for the warnings of the session's budget. Time is counted by itself."""
        self._watchdog.spend(tokens, money)

    def cite(self, id: str) -> bool:
        """Say that something the session was shown is being used; the next outcome names it. False where nothing was
        shown so.

        Args:
            id: as it stands in the advice's text, with or without its brackets, or an id of `Advice.ids`.
        """
        return self._advice_ledger.cite(id)

    def message(self, role: str, text: str) -> None:
        """Record a message of a person or the model between two calls. Ids that the model cites count as used."""
        text = str(text)
        self._recent_steps.said(role, text)
        if role != "user":
            self._advice_ledger.cite_all(text)
        self._emit("message", {names.ROLE: role, names.CONTENT: self._advice_ledger.redact_shown(text)})

    def succeed(self, reward: float | None = None) -> None:
        """Say that the goal was reached; `reward` where the environment gave one."""
        self._end("success", reward)

    def fail(self, reward: float | None = None) -> None:
        """Say that the goal was missed; `reward` where the environment gave one."""
        self._end("failure", reward)

    def forbid(self, rule: str) -> None:
        """Report a broken rule that was found after the calls: the session is then no success, whatever its reward."""
        self._rule = str(rule)[: names.MAX_RULE]

    def note(self, text: str) -> None:
        """Write something down for the next attempt at this goal (`sequential`)."""
        self.notes.append(text)

    @property
    def moments(self) -> tuple[RecentStep, ...]:
        """The last calls and messages and what came of them, oldest first: the agent's own memory of the session."""
        return tuple(self._recent_steps.moments)

    def blame(self) -> RecentStep | None:
        """The agent's own action that most likely decided the failure; a guess, see `fleetlore.watch.credit`."""
        return blame(self.goal, self.moments)

    @property
    def calls(self) -> int:
        """Calls that ended so far."""
        return self._recent_steps.calls

    @property
    def errors(self) -> int:
        """How many of them failed."""
        return self._recent_steps.errors

    @property
    def loops(self) -> int:
        """How often the session has got into a loop."""
        return self._watchdog.loops

    def _end(self, outcome: Outcome, reward: float | None) -> None:
        self.outcome, self.reward, self._ended_as_said = outcome, None if reward is None else float(reward), True

    def _emit(self, kind: Kind, data: dict[str, Any], *, at_once: bool = False) -> None:
        fleet = self._fleet
        self._watchdog.saw_event(fleet.clock.monotonic())
        event = Event(kind, fleet.tenant, fleet.agent, self.id, self._sequence, fleet.clock.now(), data)
        # A number is only used up by an event that was accepted: a drop must not look like an event that got lost
        # later.
        if fleet.emitter.emit(event, at_once=at_once):
            self._sequence += 1

    def _place(self, model: CallModel | None) -> str | None:
        """Where the session is: as it said, or as its words tell where that is sure."""
        if self.place or model is None:
            return self.place or None
        if self._recognised is None or self._recognised[:2] != (model, self._context.calls):
            self._recognised = model, self._context.calls, model.places.recognise(self._context)
        return self._recognised[2]

    def _hint(self, pattern: str) -> str | None:
        index = self._fleet.replica.index
        known = index.patterns.get(pattern)
        return None if known is None else hint_text(known, self._fleet.clock.now(), index.recoveries(pattern))

    def _is_new(self, failure: Failure) -> bool:
        """Whether no agent, as far as known here, met this failure: others may be about to make the same call."""
        known = self._fleet.replica.index.patterns
        return failure.exact not in known and failure.exact not in self._own_failures and not failure.transient

    def begin_call(self, action: Action) -> _BegunCall:
        """Send that a call begins and claim the advice that it follows. `Action` does this on entering."""
        adapter = self._fleet.action_opens()
        text = arguments_text(action.arguments)
        advice, withheld, cited = self._advice_ledger.take(_asked(action.call_id, action.tool, text))
        recorded = self._advice_ledger.redact_shown(action.arguments)
        self._emit("action", {names.TOOL: action.tool, names.ARGUMENTS: recorded})
        followed = {names.ADVICE: advice, names.WITHHELD: withheld, names.CITED: cited, names.ADAPTER: adapter}
        followed = {name: value for name, value in followed.items() if value}
        return _BegunCall(text, recorded, followed, self._fleet.clock.monotonic())

    def end_call(self, action: Action, call: _BegunCall, *, cancelled: bool = False) -> None:
        """Send how a call ended and remember it. `Action` does this on leaving.

        Args:
            cancelled: it was interrupted, by the agent's own time-out or by a person: how it would have ended is not
                known, and nothing is said of it.
        """
        if cancelled:
            self._fleet.action_closes()
            return
        data: dict[str, Any] = {
            names.TOOL: action.tool,
            names.ARGUMENTS: call.recorded,
            names.DURATION: round(self._fleet.clock.monotonic() - call.started, 6),
        }
        if action.rule:
            action.error = names.guarded(action.rule)
            data[names.VIOLATION] = action.rule
        failure = None
        if action.error is not None:
            error_type, message = action.error
            data[names.ERROR_TYPE], data[names.ERROR_MESSAGE] = error_type, redact_fenced(message)
            failure = failure_of(action.tool, call.recorded, error_type, data[names.ERROR_MESSAGE])
        elif action.result is not None:
            data[names.RESULT] = redact_fenced(action.result)
        is_new = failure is not None and self._is_new(failure)
        self._remember(action, call, failure)
        self._emit("outcome", data | call.followed, at_once=is_new)
        self._fleet.action_closes()

    def _remember(self, action: Action, call: _BegunCall, failure: Failure | None) -> None:
        tool, error = action.tool, action.error
        result = arguments_text(action.result)  # once for both
        self._recent_steps.record(tool, call.text, result, error)
        self._watchdog.took_place(tool, call.text, result, (error[1] or error[0]) if error else None)
        self._safety.took_place(tool, action.arguments, failed=failure is not None)
        text = text_of(call.text)
        self._context.record(tool, text, error[1] or error[0] if error else result, failure and failure.family)
        if failure is not None:
            kind = failure_kind(failure.error_class, failure.template, error[1] if error else "", text)
            self._own_expected.append(Expected(kind.kind, kind.names))
        if self._fleet.risk_model is not None:
            error_class = failure.error_class if failure else None
            self._made.append(_Made(tool, call.text, error_class, error[1] if error else None))
        lasting = failure if failure is not None and not failure.transient else None
        if failure is not None:
            self._preconditions.record_failure(kind_of(failure))
        if failure is None or lasting is not None:
            cause = cause_of(lasting, call.recorded) if lasting is not None else None
            self._preconditions.record_call(tool, action.arguments, cause)
        if failure is not None:
            self._own_failures.add(failure.exact)
            seen = self._context.seen | self._context.worked
            said = error[1] or error[0] if error else ""
            self._failed = FailedCall(text, said, failure, self.goal, self.id, seen, cause_of(failure, call.recorded))
        elif self._failed is not None and self._failed.failure.tool == tool:
            self._failed = None


class Action:
    """One tool call. Set `result`, or report an error that the tool gave without raising with `fail`.

    An exception inside is recorded as the call's error (its class and its text) and goes on to the agent. A call that
    is cancelled has not failed: nothing is recorded of how it ended.

    Attributes:
        error: kind and text of the error, as reported or raised.
        rule: name of the rule that the call broke.
    """

    def __init__(self, session: Session, tool: str, arguments: object, call_id: str = "") -> None:
        self.tool = _CONTROL.sub(" ", tool)[: names.MAX_ID_LENGTH] or "unnamed"
        self.arguments = arguments
        self.call_id = call_id
        self.result: object = None
        self.error: tuple[str, str] | None = None
        self.rule = ""
        self._session = session
        self._call: _BegunCall | None = None

    def fail(self, error_type: str, message: str = "") -> None:
        """Record that the tool reported an error: its kind (`error.type`, few distinct values) and its text."""
        self.error = (str(error_type), str(message))

    def forbid(self, rule: str) -> None:
        """Record that the call broke a rule, whatever it returned: for whoever checks the agent, not for the agent
        itself.

        It then counts as failed and the session as no success, so nobody learns to do it. The rule's name has few
        distinct values.
        """
        self.rule = str(rule)[: names.MAX_RULE]

    async def __aenter__(self) -> Self:
        self._call = self._session.begin_call(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self.error = (type(error).__name__, _message(error))
        if self._call is not None:
            self._session.end_call(self, self._call, cancelled=error is not None and self.error is None)


def _asked(call_id: str, tool: str | None, arguments: object) -> str:
    """What advice was asked about: a call by its id, else by what it is; nothing for the session as a whole."""
    if tool is None:
        return ""
    return f"id\x1f{call_id}" if call_id else f"{tool}\x1f{arguments_text(arguments)}"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception whose own text fails must not hide the error that is on its way
        return ""


def checked_name(what: str, name: str) -> str:
    """A name that every stage accepts; refused here, where the mistake is, and not in the dead letters.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(name, str) or not 0 < len(name) <= names.MAX_ID_LENGTH or _CONTROL.search(name):
        raise ConfigError(f"{what} must be 1 to {names.MAX_ID_LENGTH} characters without control characters: {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{what} {name!r} is not valid Unicode") from None
    return name
