"""Hold one attempt at a goal: what the agent does is sent as events, and it is shown what the fleet knows."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fleetlore.advice.advice import INTRODUCTION, MAX_CHARS, MAX_TIPS, Advice
from fleetlore.advice.gate import Tip
from fleetlore.advice.provenance import AdviceLedger, fence_name
from fleetlore.agent.action import OPEN_SESSION, Action, BegunCall
from fleetlore.agent.lifetime import Lifetime, passes_over
from fleetlore.agent.session_advice import CallHistory, SessionAdvice
from fleetlore.agent.session_events import SessionEvents, SessionOptions
from fleetlore.calls.model import Outlook
from fleetlore.fingerprint.fingerprint import Failure, arguments_text
from fleetlore.store.search import SEARCH_SECONDS
from fleetlore.watch import safety
from fleetlore.watch.watchdog import Watchdog
from fleetlore.wire import events as names
from fleetlore.wire.events import Outcome

if TYPE_CHECKING:
    from fleetlore.agent.fleet import Fleet

log = logging.getLogger(__name__)

__all__ = ["Session"]

# Items of a search: what is asked for is read, where advice comes unasked.
RECALLED = 5


class Session:
    """One attempt at a goal: a context manager, made by `Fleet.session`. Entering it sends its start, and leaving it
    always sends its end.

    Only `recall` waits, so `with` works as well as `async with`, and any thread may record and ask. Before it is
    entered, after it was left and in a process forked meanwhile every method that records or asks raises NotOpen.

    It ends as the agent reported (`succeed`, `fail`). Without a report it ends as a failure if an exception leaves it,
    and as unknown otherwise. A cancellation counts as unknown: an interrupted session has not failed.

    Attributes:
        fleet: the fleet that made it.
        id: id of the session, or of the part if it continues another (`resume`).
        goal, task, place: as given.
        outcome, reward: as reported so far. The outcome is final once the session is left.
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
        self._events = SessionEvents(fleet, options, self._ledger, self._watchdog)
        self.id = self._events.session
        self._history = CallHistory(self.goal)
        self._advice = SessionAdvice(fleet, options, self.id, self._history, self._ledger)
        self._lifetime = Lifetime(f"session {self.id}")
        self._token: Token[Session | None] | None = None
        self._warned: set[str] = set()

    def __enter__(self) -> Self:
        self.fleet.begin_session(self.id)
        self._lifetime.enter()
        with self._locked():
            self._events.start()
        self._token = OPEN_SESSION.set(self)
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
        with suppress(*passes_over(error)), self._locked():
            try:
                self._events.end(self.outcome, self.reward, self._rule)
            finally:
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
        return f"<Session {self.id} of {self.fleet.agent}, {self._lifetime}: {self.calls} calls, {self.errors} failed>"

    def warn(self, mistake: str) -> None:
        """Log a mistake of the agent's code that costs it what it meant to record; each once a session."""
        if mistake not in self._warned:
            self._warned.add(mistake)
            log.warning("session %s: %s", self.id, mistake)

    def _locked(self) -> threading.RLock:
        """The fleet's lock, for a `with`. Raises NotOpen: what is not open may record and ask nothing."""
        self._lifetime.check()
        return self.fleet.lock

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
        """Report what a step of the agent used, for the warnings of the session's budget.

        Time is counted automatically.
        """
        with self._locked():
            self._watchdog.spend(tokens, money)

    def message(self, role: str, text: str) -> None:
        """Record a message of a person or the model between two calls."""
        text = str(text)
        with self._locked():
            self._events.message(role, text)

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

    @property
    def calls(self) -> int:
        """Calls that ended so far."""
        return self._history.calls

    @property
    def errors(self) -> int:
        """How many of them failed."""
        return self._history.errors

    def _end(self, outcome: Outcome, reward: float | None) -> None:
        self._lifetime.check()
        if self._ended_as_said:
            self.warn("how it ended is said a second time: the last word counts")
        self.outcome, self.reward, self._ended_as_said = outcome, names.finite(reward), True
        if reward is not None and self.reward is None:
            self.warn(f"{reward!r} is no reward, which is a finite number: it is left out")

    def begin_call(self, action: Action) -> BegunCall:
        """Note a call and claim the advice that it follows. `Action` does this when it begins."""
        with self._locked():
            self.fleet.replica.uses(action.tool)
            self.fleet.adapters.action_opens()
            return self._events.begin_call(action)

    def end_call(
        self, action: Action, call: BegunCall, *, cancelled: bool = False, duration_seconds: float | None = None
    ) -> None:
        """Send how a call ended and remember it. `Action` does this when it ends.

        Args:
            cancelled: whether the agent's own time-out or a person interrupted it. Its end is then unknown and is not
                sent.
            duration_seconds: its duration, if it differs from the clock's.
        """
        if not cancelled and not self.is_open:
            self.warn(f"a call of {action.tool} ended after the session, and how it ended is not recorded")
        if self._lifetime.is_forked:
            return
        with self.fleet.lock:
            if not cancelled and self.is_open:
                if duration_seconds is None:
                    duration_seconds = self.fleet.clock.monotonic() - call.started
                failure = self._events.end_call(action, call, duration_seconds, self._history.failures)
                self._remember(action, call, failure)
            self.fleet.adapters.action_closes()

    def _remember(self, action: Action, call: BegunCall, failure: Failure | None) -> None:
        error, result = action.error, arguments_text(action.result)
        told = (error[1] or error[0]) if error else None
        self._watchdog.took_place(call.made.tool, call.made.json, result, failure and failure.class_)
        self._history.record(call.made, result if told is None else told, error, failure)

    @property
    def introduction(self) -> str:
        """How to read the advice of this session: constant, for the system message, before any of it."""
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
        """Return the fleet's advice about a call that is about to be made, or about the task if no tool is given. No
        network.

        It is mostly empty. Before a call it has one line if the call will likely fail. After a failure it has at most
        one way out, until a call of the same tool works. At the start it has the text of `brief`.

        Args:
            call_id: the call's id in a model's API, if several calls run in parallel.
            unseen: leave out tips that the session was shown before. An agent that keeps no context takes False.
            most: largest number of tips. More is not better: tips without need mislead.
            max_chars: largest length of the text. The least important tips are left out.
        """
        with self._locked():
            moment = self._advice.moment(tool, arguments, unseen=unseen)
            cautions = self.cautions() if tool is None else (*self.cautions(), *safety.cautions(tool, arguments))
            about = moment.asked.call.key(call_id) if moment.asked.call is not None else ""
            return self._advice.advise(moment, cautions, most, max_chars, about=about)

    def brief(
        self, tools: Sequence[str] = (), *, unseen: bool = True, most: int = MAX_TIPS, max_chars: int = MAX_CHARS
    ) -> Advice:
        """Return advice for a model before it chooses a call.

        It covers the structure of the place, ways past the failures of its tools, and the way that solved this very
        goal. The other arguments are those of `advise`.

        Args:
            tools: names of the tools that it may call. Advice on other tools is left out.
        """
        with self._locked():
            moment = self._advice.moment(None, None, tuple(tools), unseen=unseen)
            return self._advice.advise(moment, self.cautions(), most, max_chars)

    def hold(self, tool: str, arguments: object = None) -> Advice | None:
        """Return the answer to give in place of a call that will fail, or None if the call is to be made.

        Each call is held once at most, and never if it follows a tip. The setting `hold` (`FLEETLORE_HOLD`) chooses the
        calls that are held. A held call is not recorded, because it was not made.
        """
        if self.fleet.settings.hold == "off":
            return None
        with self._locked():
            return self._advice.hold(tool, arguments)

    async def recall(self, text: str, most: int = RECALLED, *, timeout_seconds: float = SEARCH_SECONDS) -> Advice:
        """Search the fleet's whole store for a text: a goal, an error, a question. The best match comes first.

        Other advice comes from the agent's own memory. This asks Milvus (`FLEETLORE_MILVUS`, or that of `data=`), for a
        tenant with more lore than fits there. Like other advice it leaves out lore that only this session contributed,
        withholds a share at random, and is credited with the outcome.

        Args:
            most: largest number of items, withheld ones included.
            timeout_seconds: time limit of the search.

        Raises:
            NotOpen: the session was not entered, was left, or was entered before a fork.
            ModelUnavailable: the extra `[recall]` is not installed.
            ConfigError: no worker has written to the store yet, or one of an earlier version.
            StoreUnavailable: Milvus does not answer within the time.
        """
        self._lifetime.check()
        found = await self.fleet.lore_search.items(text, least=most, timeout_seconds=timeout_seconds)
        with self._locked():
            return self._advice.found([item for _, item in found], most)

    def outlook(self, calls: Sequence[tuple[str, object]]) -> list[Outlook | None]:
        """Return the call model's outlook on calls (tool, arguments) that may come next. No I/O; some 2 ms for eight.

        A call that the model cannot judge gets None.
        """
        with self._locked():
            return self._advice.outlook(calls)

    def cautions(self) -> tuple[Tip, ...]:
        """Return the warnings that follow from the session itself: a budget that runs out, a standstill.

        They are also part of advice. This method is for a supervisor of an agent that asks for no advice.
        """
        with self._locked():
            return self._watchdog.cautions(self.fleet.clock.monotonic())
