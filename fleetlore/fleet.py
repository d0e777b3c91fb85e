"""What an agent holds: a `Fleet`, its sessions and the actions in them.

    async with Fleet("billing-agent", data="./lore") as fleet:
        async with fleet.session("refund order 17", task="refund") as session:
            print(session.advise("sql", {"query": query}).text)
            async with session.action("sql", {"query": query}) as action:
                action.result = await run(query)
            session.succeed()

Nothing here waits for the broker and nothing raises for its sake: what cannot be sent is dropped and counted, what cannot
be read is not known. An agent's own exceptions pass through, recorded.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fleetlore import events as names
from fleetlore.advice import Advice, advise
from fleetlore.clock import Clock, SystemClock
from fleetlore.config import Settings
from fleetlore.emitter import Emitter
from fleetlore.errors import ConfigError
from fleetlore.events import Event, Kind, Outcome
from fleetlore.patterns import Failure, call_id, failure_of
from fleetlore.replica import LoreReplica
from fleetlore.topics import DEFAULT_TENANT, check_tenant

if TYPE_CHECKING:  # torch comes with the extra [policy] and must not be imported by an agent without it
    from fleetlore.adapters import AdapterSubscriber
    from fleetlore.policy import Policy

__all__ = ["Action", "Fleet", "Session"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Fleet:
    """One agent's membership in a fleet: an async context manager.

    Args:
        agent: its name, 1–256 printable characters.
        broker: Kafka bootstrap servers; default: `FLEETLORE_BROKER`.
        data: folder of an embedded stack (`fleetlore up --data DIR`), instead of `broker`.
        tenant: whose fleet it is.
        policy: also follow the adapters and offer `policy`; needs the extra `[policy]`.
        max_buffered_events: how many events wait for the broker at the most.
        fetch_wait_ms: how long the broker may hold a request for lore open; default: `FLEETLORE_FETCH_WAIT_MS`. Lower is
            sooner and costs more requests, which count where many agents share a small broker.

    Raises:
        ConfigError: a name or setting is malformed, or no stack runs on `data`.
        ModelUnavailable: on entering, with `policy=True`, where the extra or the packaged base is missing.
    """

    def __init__(
        self,
        agent: str,
        *,
        broker: str | None = None,
        data: str | Path | None = None,
        tenant: str = DEFAULT_TENANT,
        policy: bool = False,
        max_buffered_events: int = 10_000,
        fetch_wait_ms: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.agent = _checked("agent", agent)
        self.tenant = check_tenant(tenant)
        self.clock = clock or SystemClock()
        self.settings = (
            Settings.from_env(broker=broker, fetch_wait_ms=fetch_wait_ms)
            if data is None
            else Settings.from_data_dir(data, broker=broker, fetch_wait_ms=fetch_wait_ms)
        )
        self.emitter = Emitter(self.settings.broker, self.tenant, max_events=max_buffered_events)
        self.replica = LoreReplica(
            self.settings.broker, self.tenant, fetch_wait_ms=self.settings.fetch_wait_ms, clock=self.clock
        )
        self._wants_policy = policy
        self._subscriber: AdapterSubscriber | None = None
        self._open_actions = 0

    async def start(self) -> None:
        """What entering the context does; returns without waiting for the broker."""
        if self._wants_policy:
            # On a thread: importing torch takes seconds, which the agent's event loop should not feel.
            self._subscriber = await asyncio.to_thread(self._new_subscriber)
            await self._subscriber.start()
        await self.emitter.start()
        await self.replica.start()

    async def close(self, timeout_seconds: float = 2.0) -> None:
        """Send what is buffered within the limit, then stop everything. Never hangs."""
        await self.emitter.close(timeout_seconds)
        parts = [self.replica.close()]
        if self._subscriber is not None:
            parts.append(self._subscriber.close())
        await asyncio.gather(*parts)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def ready(self, timeout_seconds: float) -> bool:
        """Wait until all lore (and with `policy=True` the newest adapter) that exists now is here; False if time is up."""
        waits = [self.replica.caught_up(timeout_seconds)]
        if self._subscriber is not None:
            waits.append(self._subscriber.caught_up(timeout_seconds))
        return all(await asyncio.gather(*waits))

    def session(self, goal: str, task: str = "", session_id: str | None = None) -> Session:
        """A new session: an async context manager.

        Args:
            goal: what is to be done, in words.
            task: name of the kind of task; sessions of one task are compared with each other.
            session_id: 1–256 printable characters, unique in the tenant; made up if not given.
        """
        return Session(self, goal, task, session_id)

    def feedback(self, session_id: str, outcome: Outcome, reward: float | None = None) -> bool:
        """Correct how a session ended, whenever that becomes known. False where the event was dropped."""
        now = self.clock.now()
        data: dict[str, Any] = {names.OUTCOME: outcome}
        if reward is not None:
            data[names.REWARD] = float(reward)
        # Feedback stands outside the session's own sequence, which only the session itself knows; the upper half of the
        # range gives each second's feedback an id of its own.
        half = names.MAX_SEQUENCE // 2
        session = _checked("session_id", session_id)
        return self.emitter.emit(Event("feedback", self.tenant, self.agent, session, half + int(now) % half, now, data))

    async def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything sent so far has been acknowledged; False when the time is up."""
        return await self.emitter.flush(timeout_seconds)

    @property
    def sent(self) -> int:
        """Events that the broker has acknowledged."""
        return self.emitter.sent

    @property
    def dropped(self) -> int:
        """Events that were given up because the broker did not take them in time."""
        return self.emitter.dropped

    @property
    def policy(self) -> Policy | None:
        """The policy in use; None without `policy=True`."""
        return self._subscriber.policy if self._subscriber is not None else None

    @property
    def adapter_version(self) -> str | None:
        """Version of the adapter in use; None on the bare base or without a policy."""
        return self._subscriber.version if self._subscriber is not None else None

    @property
    def adapters_refused(self) -> dict[str, int]:
        """How many adapter records and versions were refused, by reason."""
        return dict(self._subscriber.refused) if self._subscriber is not None else {}

    def _new_subscriber(self) -> AdapterSubscriber:
        from fleetlore.adapters import AdapterSubscriber
        from fleetlore.manifest import public_keys
        from fleetlore.policy import Policy

        keys = [key.strip() for key in self.settings.public_key.split(",") if key.strip()]
        if not keys:
            raise ConfigError("policy=True needs FLEETLORE_PUBLIC_KEY: whose adapters to accept")
        return AdapterSubscriber(
            self.settings.broker,
            self.tenant,
            self.agent,
            public_keys(*keys),
            Policy(),
            idle=lambda: self._open_actions == 0,
            clock=self.clock,
        )

    def _action_opens(self) -> str | None:
        self._open_actions += 1
        return self.adapter_version

    def _action_closes(self) -> None:
        self._open_actions -= 1
        if self._open_actions == 0 and self._subscriber is not None:
            self._subscriber.apply_pending()


class Session:
    """One attempt at a goal. Entering it sends its start; leaving it sends its end, always.

    It ends as the agent said (`succeed`, `fail`); else as a failure where an exception leaves it, and as unknown
    otherwise, a cancellation included: who was interrupted has not failed.
    """

    def __init__(self, fleet: Fleet, goal: str, task: str = "", session_id: str | None = None) -> None:
        self.id = uuid.uuid4().hex if session_id is None else _checked("session_id", session_id)
        self.goal = goal
        self.task = task
        self._fleet = fleet
        self._sequence = 0
        self._outcome: Outcome | None = None
        self._reward: float | None = None
        self._own_failures: set[str] = set()
        self._last_failure: Failure | None = None
        self._advised: dict[str, tuple[str, ...]] = {}  # ids shown since the last action, by kind of call
        self._advised_for_all: tuple[str, ...] = ()

    async def __aenter__(self) -> Self:
        self._emit("session.started", {names.GOAL: self.goal, names.TASK: self.task})
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        outcome = self._outcome or ("failure" if isinstance(error, Exception) else "unknown")
        data: dict[str, Any] = {names.OUTCOME: outcome}
        if self._reward is not None:
            data[names.REWARD] = self._reward
        if self._fleet.adapter_version is not None:
            data[names.ADAPTER] = self._fleet.adapter_version
        self._emit("session.ended", data)

    def action(self, tool: str, arguments: object = None) -> Action:
        """A tool call about to be made: an async context manager around it.

        Args:
            arguments: an object of JSON values, or text.
        """
        return Action(self, tool, arguments)

    def advise(self, tool: str | None = None, arguments: object = None) -> Advice:
        """What the fleet knows about a call that is about to be made, or without one about the task. No network.

        After a failure it also brings what helped others against that failure, until a call of the same tool works.
        """
        advice = advise(
            self._fleet.replica.index,
            tool,
            arguments,
            now=self._fleet.clock.now(),
            task=self.task,
            session=self.id,
            own_failures=self._own_failures,
            last_failure=self._last_failure,
        )
        if tool is None:
            self._advised_for_all = advice.ids
        else:
            self._advised[call_id(tool, arguments)] = advice.ids
        return advice

    def message(self, role: str, text: str) -> None:
        """Record what a person or the model said between two calls."""
        self._emit("message", {names.ROLE: role, names.CONTENT: text})

    def succeed(self, reward: float | None = None) -> None:
        """Say that the goal was reached; `reward` where the environment gave one."""
        self._outcome, self._reward = "success", None if reward is None else float(reward)

    def fail(self, reward: float | None = None) -> None:
        """Say that the goal was missed; `reward` where the environment gave one."""
        self._outcome, self._reward = "failure", None if reward is None else float(reward)

    def _emit(self, kind: Kind, data: dict[str, Any]) -> None:
        fleet = self._fleet
        event = Event(kind, fleet.tenant, fleet.agent, self.id, self._sequence, fleet.clock.now(), data)
        # A number is only used up by an event that was accepted: a drop must not look like an event that got lost later.
        if fleet.emitter.emit(event):
            self._sequence += 1

    def _take_advice(self, call: str) -> list[str]:
        """Ids of what the agent was told before this call; the next one starts afresh."""
        ids = dict.fromkeys((*self._advised.get(call, ()), *self._advised_for_all))
        self._advised.clear()
        return list(ids)

    def _took_place(self, tool: str, failure: Failure | None) -> None:
        if failure is not None:
            self._own_failures.add(failure.exact)
            self._last_failure = failure
        elif self._last_failure is not None and self._last_failure.tool == tool:
            self._last_failure = None


class Action:
    """One tool call. Set `result`, or report an error that the tool gave without raising with `fail`.

    An exception inside is recorded as the call's error (its class and its text) and goes on to the agent.
    """

    def __init__(self, session: Session, tool: str, arguments: object) -> None:
        self.tool = _CONTROL.sub(" ", tool)[: names.MAX_ID_LENGTH] or "unnamed"
        self.arguments = arguments
        self.result: object = None
        self._session = session
        self._error: tuple[str, str] | None = None
        self._advice: list[str] = []
        self._adapter: str | None = None
        self._started = 0.0

    def fail(self, error_type: str, message: str = "") -> None:
        """Record that the tool reported an error: its kind (`error.type`, few distinct values) and its text."""
        self._error = (str(error_type), str(message))

    async def __aenter__(self) -> Self:
        session, fleet = self._session, self._session._fleet
        self._adapter = fleet._action_opens()
        self._advice = session._take_advice(call_id(self.tool, self.arguments))
        session._emit("action", {names.TOOL: self.tool, names.ARGUMENTS: self.arguments})
        self._started = fleet.clock.monotonic()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        session, fleet = self._session, self._session._fleet
        data: dict[str, Any] = {
            names.TOOL: self.tool,
            names.ARGUMENTS: self.arguments,
            names.DURATION: round(fleet.clock.monotonic() - self._started, 6),
        }
        if error is not None:
            self._error = (type(error).__name__, _message(error))
        failure = None
        if self._error is not None:
            data[names.ERROR_TYPE], data[names.ERROR_MESSAGE] = self._error
            failure = failure_of(self.tool, self.arguments, *self._error)
        elif self.result is not None:
            data[names.RESULT] = self.result
        if self._advice:
            data[names.ADVICE] = self._advice
        if self._adapter is not None:
            data[names.ADAPTER] = self._adapter
        session._took_place(self.tool, failure)
        session._emit("outcome", data)
        fleet._action_closes()


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception whose own text fails must not hide the error that is on its way
        return ""


def _checked(what: str, name: str) -> str:
    """A name that every stage accepts; refused here, where the mistake is, and not in the dead letters."""
    if not isinstance(name, str) or not 0 < len(name) <= names.MAX_ID_LENGTH or _CONTROL.search(name):
        raise ConfigError(f"{what} must be 1 to {names.MAX_ID_LENGTH} characters without control characters: {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{what} {name!r} is not valid Unicode") from None
    return name
