"""Record one attempt at a goal as events, and show it what the fleet knows."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import Token
from typing import TYPE_CHECKING, Any, Self

from fleetlore.advice.advice import INTRODUCTION, MAX_CHARS, MAX_TIPS, Advice
from fleetlore.advice.gate import Tip
from fleetlore.advice.provenance import AdviceLedger, fence_name, redact_fenced
from fleetlore.advice.situation import CallHistory
from fleetlore.agent.action import OPEN_SESSION, Action, BegunCall
from fleetlore.agent.session_parts import Lifetime, SessionAdvice, SessionOptions, passes_over
from fleetlore.calls.call import MadeCall
from fleetlore.calls.model import Outlook
from fleetlore.fingerprint.fingerprint import Failure, arguments_text, failure_of
from fleetlore.recall.search import SEARCH_SECONDS
from fleetlore.watch import safety
from fleetlore.watch.watchdog import Watchdog
from fleetlore.wire import events as names
from fleetlore.wire.events import Event, Kind, Outcome
from fleetlore.wire.stats import user_hash

if TYPE_CHECKING:
    from fleetlore.agent.fleet import Fleet

log = logging.getLogger(__name__)

__all__ = ["Session"]

RECALLED = 5


class Session:
    """One attempt at a goal: a context manager, made by `Fleet.session`. Entering it sends its start, and leaving it
    always sends its end.

    `with` works as well as `async with`. Any thread may record and ask. Outside of its block, and in a forked process,
    these methods raise NotOpen.

    Without a report (`succeed`, `fail`) it ends as a failure if an exception leaves it, otherwise as unknown.

    Attributes:
        id: of the session, or of the part if it continues another (`resume`).
    """

    def __init__(self, fleet: Fleet, options: SessionOptions) -> None:
        self.fleet = fleet
        self.goal, self.task = options.goal, options.task
        self.place = names.checked_name("place", options.place) if options.place else ""
        self.outcome: Outcome = "unknown"
        self.reward: float | None = None
        self._ended_as_said = False
        self._rule = ""
        self._ledger = AdviceLedger()
        self._watchdog = Watchdog(fleet.clock.monotonic(), options.budget, options.stall_seconds)
        self._user = user_hash(options.user) if options.user else ""
        self.id, self._conversation = _ids(options)
        self._sequence, self._open_calls = 0, 0
        self._history = CallHistory(self.goal)
        self._advice = SessionAdvice(fleet, options, self.id, self._history, self._ledger)
        self._lifetime = Lifetime(f"session {self.id}")
        self._token: Token[Session | None] | None = None
        self._warned: set[str] = set()

    def __enter__(self) -> Self:
        self.fleet.begin_session(self.id)
        self._lifetime.enter()
        about = _known({names.PLACE: self.place, names.USER: self._user, names.CONVERSATION: self._conversation})
        with self._locked(), self.fleet.guard:
            self._emit("session.started", {names.GOAL: redact_fenced(self.goal), names.TASK: self.task} | about)
        self._token = OPEN_SESSION.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if self._token is not None and OPEN_SESSION.get() is self:
            with suppress(ValueError):  # left in another context
                OPEN_SESSION.reset(self._token)
        if self._lifetime.is_forked:
            return  # its parent reports the end
        if not self._ended_as_said and isinstance(error, Exception):
            self.outcome = "failure"
        with suppress(*passes_over(error)), self._locked():
            try:
                reward: dict[str, Any] = {} if self.reward is None else {names.REWARD: self.reward}
                known = _known({names.VIOLATION: self._rule, names.ADAPTER: self.fleet.adapter_version})
                self._emit("session.ended", {names.OUTCOME: self.outcome} | reward | known)
            finally:
                self._lifetime.leave()
                while self._open_calls:  # a coroutine may never be awaited
                    self._call_closes()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *left: Any) -> None:
        self.__exit__(*left)

    @property
    def is_open(self) -> bool:
        return self._lifetime.is_open

    def __repr__(self) -> str:
        return f"<Session {self.id} of {self.fleet.agent}, {self._lifetime}: {self.calls} calls, {self.errors} failed>"

    def warn(self, mistake: str) -> None:
        """Log once a mistake in the agent's code that loses a record."""
        if mistake not in self._warned:
            self._warned.add(mistake)
            log.warning("session %s: %s", self.id, mistake)

    def _locked(self) -> threading.RLock:
        self._lifetime.check()
        return self.fleet.lock

    def action(self, tool: str, arguments: object = None, *, call_id: str = "") -> Action:
        """Return a context manager around a tool call. `arguments`: JSON values or text. `call_id`: as for `advise`."""
        self._lifetime.check()
        return Action(self, tool, arguments, call_id)

    def begin(self, tool: str, arguments: object = None, *, call_id: str = "") -> Action:
        """Record that a tool call begins, until `end` of the result."""
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
        """Record a tool call that is over. See `begin` and `Action.end`."""
        action = self.begin(tool, arguments, call_id=call_id)
        action.end(result, error=error, error_text=error_text, duration_seconds=duration_seconds)

    def spend(self, *, tokens: float = 0.0, money: float = 0.0) -> None:
        """Add to the used budget. Time counts automatically."""
        with self._locked():
            self._watchdog.spend(tokens, money)

    def message(self, role: str, text: str) -> None:
        """Record a message of a person or the model."""
        with self._locked(), self.fleet.guard:
            text = str(text)
            self._emit("message", {names.ROLE: role, names.CONTENT: self._ledger.redact_shown(text)})

    def succeed(self, reward: float | None = None) -> None:
        """Report that the goal was reached. `reward`: of the environment."""
        self._end("success", reward)

    def fail(self, reward: float | None = None) -> None:
        """Report that the goal was missed."""
        self._end("failure", reward)

    def forbid(self, rule: str) -> None:
        """Report a broken rule found after the calls. The session is then no success."""
        self._lifetime.check()
        self._rule = str(rule)[: names.MAX_RULE]

    @property
    def calls(self) -> int:
        return self._history.calls

    @property
    def size(self) -> int:
        """Bytes of the texts of others that it keeps, from above."""
        return len(self.goal) + len(self.task) + self._history.size

    @property
    def errors(self) -> int:
        return self._history.errors

    def _end(self, outcome: Outcome, reward: float | None) -> None:
        self._lifetime.check()
        if self._ended_as_said:
            self.warn("how it ended is said a second time: the last word counts")
        self.outcome, self.reward, self._ended_as_said = outcome, names.finite(reward), True
        if reward is not None and self.reward is None:
            self.warn(f"{reward!r} is no reward, which is a finite number: it is left out")

    def begin_call(self, action: Action, begun: BegunCall | None = None) -> BegunCall:
        """Claim the advice that a call follows. `begun`: a call whose arguments have changed."""
        with self._locked():
            made, recorded = MadeCall(action.tool, action.arguments), self._ledger.redact_shown(action.arguments)
            if begun is not None:
                return begun._replace(made=made, recorded=recorded)
            self.fleet.replica.uses(action.tool)
            advice, withheld = self._ledger.take(made.key(action.call_id))
            followed = {names.ADVICE: advice, names.WITHHELD: withheld, names.ADAPTER: self.fleet.adapter_version}
            started = self.fleet.clock.monotonic()
            self._watchdog.saw_event(started)
            begun = BegunCall(made, recorded, _known(followed), started)
            self.fleet.adapters.action_opens()
            self._open_calls += 1
            return begun

    def end_call(
        self, action: Action, call: BegunCall, *, cancelled: bool = False, duration_seconds: float | None = None
    ) -> None:
        """Send how a call ended and remember it. `cancelled`: its end is unknown. `duration_seconds`: by default the
        clock's.
        """
        if not cancelled and not self.is_open:
            self.warn(f"a call of {action.tool} ended after the session, and how it ended is not recorded")
        if self._lifetime.is_forked:
            return
        with self.fleet.lock:
            with self.fleet.guard:
                if not cancelled and self.is_open:
                    if duration_seconds is None:
                        duration_seconds = self.fleet.clock.monotonic() - call.started
                    failure = self._send_outcome(action, call, duration_seconds)
                    error, result = action.error, arguments_text(action.result)
                    self._watchdog.took_place(call.made.tool, call.made.json, result, failure)
                    said = result if error is None else error[1] or error[0]
                    self._history.record(call.made, said, error, failure, self.fleet.clock.now())
            if self._open_calls:
                self._call_closes()

    def _call_closes(self) -> None:
        self._open_calls -= 1
        self.fleet.adapters.action_closes()

    def _send_outcome(self, action: Action, call: BegunCall, duration_seconds: float) -> Failure | None:
        """Return the call's failure. One that is new to session and fleet is sent at once."""
        data: dict[str, Any] = {names.TOOL: action.tool, names.ARGUMENTS: call.recorded}
        if duration_seconds:
            data[names.DURATION] = round(duration_seconds, 6)
        if action.rule:
            action.error, data[names.VIOLATION] = names.guarded(action.rule), action.rule
        failure, is_news = None, False
        if action.error is not None:
            error_type, message = action.error
            # Read it as workers do, to match the fleet's patterns.
            recorded, message, personal = call.recorded, redact_fenced(message), self.fleet.personal
            if personal is not None:
                recorded, message = personal.masked_text(arguments_text(recorded)), personal.masked_text(message)
            data[names.ERROR_TYPE], data[names.ERROR_MESSAGE] = error_type, message
            failure = failure_of(action.tool, recorded, error_type, message)
            known = failure.exact in self._history.failures or failure.exact in self.fleet.replica.index.patterns
            is_news = not failure.transient and not known
        elif action.result is not None:
            data[names.RESULT] = redact_fenced(action.result)
        self._emit("outcome", data | call.followed, at_once=is_news)
        return failure

    def _emit(self, kind: Kind, data: dict[str, Any], *, at_once: bool = False) -> None:
        fleet = self.fleet
        self._watchdog.saw_event(fleet.clock.monotonic())
        event = Event(kind, fleet.tenant, fleet.agent, self.id, self._sequence, fleet.clock.now(), data)
        # Only an accepted event uses up a number: a drop must not look like a lost event.
        if fleet.emitter.emit(event, at_once=at_once):
            self._sequence += 1

    def know_as(self, names: Mapping[str, str]) -> None:
        """Give the names by which the model knows tools that are recorded under others, which advice then uses.

        Args:
            names: by recorded name, as `{"mcp__shop__find": "find"}`. One that ends in `__` is the beginning of many.
        """
        with self._locked():
            self._advice.know_as(names)

    @property
    def introduction(self) -> str:
        """How to read advice: constant, for the system message."""
        return INTRODUCTION.format(name=fence_name(self._advice.nonce))

    def advise(
        self,
        tool: str | None = None,
        arguments: object = None,
        *,
        call_id: str = "",
        unseen: bool = True,
        most: int = MAX_TIPS,
        max_chars: int = MAX_CHARS,
    ) -> Advice:
        """Return the fleet's advice about the next call, or about the task if no tool is given. No network.

        Before a call it has one line if the call will likely fail. After a failure it has at most one way out, until a
        call of the same tool works. At the start it has the text of `brief`.

        Args:
            call_id: if several calls run in parallel.
            unseen: leave out tips that were shown before. False for an agent without a context.
            most: number of tips, beside hints that persons wrote.
        """
        with self._locked(), self.fleet.guard:
            moment = self._advice.moment(tool, arguments, unseen=unseen)
            cautions = self.cautions() if tool is None else (*self.cautions(), *safety.cautions(tool, arguments))
            about = moment.asked.call.key(call_id) if moment.asked.call is not None else ""
            return self._advice.advise(moment, cautions, most, max_chars, about=about)
        return Advice()

    def brief(
        self, tools: Sequence[str] = (), *, unseen: bool = True, most: int = MAX_TIPS, max_chars: int = MAX_CHARS
    ) -> Advice:
        """Return advice before a model chooses a call: the structure of the place, ways past failures of the tools that
        it may call, and the way that solved this very goal. The other arguments are those of `advise`.
        """
        with self._locked(), self.fleet.guard:
            moment = self._advice.moment(None, None, tuple(tools), unseen=unseen)
            return self._advice.advise(moment, self.cautions(), most, max_chars)
        return Advice()

    def hold(self, tool: str, arguments: object = None) -> Advice | None:
        """Return the answer that replaces a failing call, or None if the call is to be made.

        `FLEETLORE_HOLD` chooses the calls. Each is held once at most, and is not recorded.
        """
        if self.fleet.settings.hold == "off":
            return None
        with self._locked(), self.fleet.guard:
            return self._advice.hold(tool, arguments)
        return None

    async def recall(self, text: str, most: int = RECALLED, *, timeout_seconds: float = SEARCH_SECONDS) -> Advice:
        """Search the fleet's whole store for a text: a goal, an error, a question.

        This asks Milvus, for a tenant with more lore than fits into the agent's memory.

        Args:
            most: largest number of items, withheld ones included.

        Raises:
            NotOpen: outside of the session's block.
            ModelUnavailable: the extra `[recall]` is not installed.
            ConfigError: no worker of this version has written to the store.
            StoreUnavailable: Milvus does not answer within the time.
        """
        self._lifetime.check()
        found = await self.fleet.lore_search.items(text, least=most, timeout_seconds=timeout_seconds)
        with self._locked(), self.fleet.guard:
            return self._advice.found([item for _, item in found], most)
        return Advice()

    def outlook(self, calls: Sequence[tuple[str, object]]) -> list[Outlook | None]:
        """Return the call model's outlook on calls (tool, arguments), or None for unknown tools: 2 ms for eight."""
        with self._locked(), self.fleet.guard:
            return self._advice.outlook(calls)
        return [None for _ in calls]

    def cautions(self) -> tuple[Tip, ...]:
        """Return the session's own warnings, which `advise` gives too."""
        with self._locked(), self.fleet.guard:
            return self._watchdog.cautions(self.fleet.clock.monotonic())
        return ()


def _ids(options: SessionOptions) -> tuple[str, str]:
    if options.session_id is None:
        return uuid.uuid4().hex, ""
    given = names.checked_name("session_id", options.session_id)
    if not options.resume:
        return given, ""
    return names.checked_name("session_id", f"{given}.{uuid.uuid4().hex[:12]}"), given


def _known(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value}
