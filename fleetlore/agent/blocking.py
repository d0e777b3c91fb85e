"""The same fleet for agents without asyncio: same names, no `async`.

    with BlockingFleet("billing-agent", data="./lore") as fleet:
        with fleet.session("refund order 17") as session:
            with session.action("sql", {"query": query}) as action:
                action.result = run(query)
            session.succeed()

The fleet lives on an event loop of its own, in one background thread; every call is handed over to it. It may be used
from several threads at once.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from fleetlore.agent.attempts import Attempts, Choose, best_of
from fleetlore.agent.fleet import Action, Fleet, Session
from fleetlore.calls.model import CallModel
from fleetlore.errors import FleetloreError
from fleetlore.recall.advice import Advice, Caution
from fleetlore.watch.watchdog import Budget
from fleetlore.wire.events import Outcome
from fleetlore.wire.lore import MemoryItem

if TYPE_CHECKING:
    from fleetlore.risk.model import RiskModel

__all__ = ["BlockingAction", "BlockingFleet", "BlockingSession"]

Arguments = ParamSpec("Arguments")
Given = TypeVar("Given")
Result = TypeVar("Result")


def _arguments_of(
    original: Callable[Concatenate[Any, Arguments], object],
) -> Callable[[Callable[..., Given]], Callable[Concatenate[Any, Arguments], Given]]:
    """Give a method the arguments of the one it stands for, so that the two cannot differ."""

    def decorate(method: Callable[..., Given]) -> Callable[Concatenate[Any, Arguments], Given]:
        method.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
        return method

    return decorate


class _LoopThread:
    """An event loop on a daemon thread: an agent that forgets to close its fleet can still exit."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fleetlore", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def call(self, function: Callable[[], Result]) -> Result:
        async def work() -> Result:
            return function()

        return self.run(work())

    def close(self) -> None:
        async def cancel_leftovers() -> None:
            leftovers = asyncio.all_tasks() - {asyncio.current_task()}
            for task in leftovers:
                task.cancel()
            await asyncio.gather(*leftovers, return_exceptions=True)

        self.run(cancel_leftovers())
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class BlockingFleet:
    """`fleetlore.Fleet` as an ordinary context manager; the arguments are the same."""

    @_arguments_of(Fleet.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._make = lambda: Fleet(*args, **kwargs)
        self._open: tuple[_LoopThread, Fleet] | None = None

    @property
    def _thread(self) -> _LoopThread:
        return self._entered()[0]

    @property
    def _fleet(self) -> Fleet:
        return self._entered()[1]

    def _entered(self) -> tuple[_LoopThread, Fleet]:
        if self._open is None:
            raise FleetloreError("a BlockingFleet is used inside its `with` block")
        return self._open

    def __enter__(self) -> Self:
        thread = _LoopThread()
        try:
            fleet = thread.call(self._make)
            thread.run(fleet.start())
        except BaseException:
            thread.close()
            raise
        self._open = (thread, fleet)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        thread, fleet = self._entered()
        try:
            thread.run(fleet.close())
        finally:
            thread.close()

    def ready(self, timeout_seconds: float) -> bool:
        """See `Fleet.ready`."""
        return self._thread.run(self._fleet.ready(timeout_seconds))

    @_arguments_of(Fleet.session)
    def session(self, *args: Any, **kwargs: Any) -> BlockingSession:
        """See `Fleet.session`."""
        return BlockingSession(self._thread, self._fleet.session(*args, **kwargs))

    def parallel(
        self,
        goal: str,
        attempt: Callable[[BlockingSession], Result],
        *,
        k: int = 3,
        task: str = "",
        budget: Budget | None = None,
        choose: Choose[Result] = best_of,
    ) -> Attempts[Result]:
        """See `fleetlore.agent.attempts.parallel`; each attempt runs on a thread of its own."""
        made = self._on_a_thread(attempt)
        return self._thread.run(self._fleet.parallel(goal, made, k=k, task=task, budget=budget, choose=choose))

    def sequential(
        self,
        goal: str,
        attempt: Callable[[BlockingSession], Result],
        *,
        k: int = 3,
        task: str = "",
        budget: Budget | None = None,
        choose: Choose[Result] = best_of,
    ) -> Attempts[Result]:
        """See `fleetlore.agent.attempts.sequential`."""
        made = self._on_a_thread(attempt)
        return self._thread.run(self._fleet.sequential(goal, made, k=k, task=task, budget=budget, choose=choose))

    def _on_a_thread(self, attempt: Callable[[BlockingSession], Result]) -> Callable[[Session], Awaitable[Result]]:
        thread = self._thread
        return lambda session: asyncio.to_thread(attempt, BlockingSession(thread, session))

    def feedback(self, session_id: str, outcome: Outcome, reward: float | None = None) -> bool:
        """See `Fleet.feedback`."""
        return self._thread.call(lambda: self._fleet.feedback(session_id, outcome, reward))

    def flush(self, timeout_seconds: float) -> bool:
        """See `Fleet.flush`."""
        return self._thread.run(self._fleet.flush(timeout_seconds))

    @property
    def sent(self) -> int:
        """See `Fleet.sent`; also after the block."""
        return self._fleet.sent

    @property
    def dropped(self) -> int:
        """See `Fleet.dropped`; also after the block."""
        return self._fleet.dropped

    @property
    def call_model(self) -> CallModel | None:
        """See `Fleet.call_model`."""
        return self._fleet.call_model

    @property
    def call_model_version(self) -> str | None:
        """See `Fleet.call_model_version`."""
        return self._fleet.call_model_version

    @property
    def risk_model(self) -> RiskModel | None:
        """See `Fleet.risk_model`."""
        return self._fleet.risk_model

    @property
    def adapter_version(self) -> str | None:
        """See `Fleet.adapter_version`."""
        return self._fleet.adapter_version


class BlockingSession:
    """`fleetlore.Session` as an ordinary context manager."""

    def __init__(self, thread: _LoopThread, session: Session) -> None:
        self._thread = thread
        self._session = session

    @property
    def id(self) -> str:
        return self._session.id

    def __enter__(self) -> Self:
        self._thread.run(self._session.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.run(self._session.__aexit__(kind, error, traceback))

    def action(self, tool: str, arguments: object = None, *, call_id: str = "") -> BlockingAction:
        """See `Session.action`."""
        return BlockingAction(self._thread, self._session.action(tool, arguments, call_id=call_id))

    @_arguments_of(Session.advise)
    def advise(self, *args: Any, **kwargs: Any) -> Advice:
        """See `Session.advise`."""
        return self._thread.call(lambda: self._session.advise(*args, **kwargs))

    @_arguments_of(Session.brief)
    def brief(self, *args: Any, **kwargs: Any) -> Advice:
        """See `Session.brief`."""
        return self._thread.call(lambda: self._session.brief(*args, **kwargs))

    @_arguments_of(Session.recall)
    def recall(self, *args: Any, **kwargs: Any) -> list[MemoryItem]:
        """See `Session.recall`."""
        return self._thread.run(self._session.recall(*args, **kwargs))

    def message(self, role: str, text: str) -> None:
        """See `Session.message`."""
        self._thread.call(lambda: self._session.message(role, text))

    def succeed(self, reward: float | None = None) -> None:
        """See `Session.succeed`."""
        self._session.succeed(reward)

    def forbid(self, rule: str) -> None:
        """See `Session.forbid`."""
        self._session.forbid(rule)

    def note(self, text: str) -> None:
        """See `Session.note`."""
        self._session.note(text)

    @property
    def earlier(self) -> str:
        """See `Session.earlier`."""
        return self._session.earlier

    def cautions(self) -> tuple[Caution, ...]:
        """See `Session.cautions`."""
        return self._thread.call(self._session.cautions)

    def spend(self, *, tokens: float = 0.0, money: float = 0.0) -> None:
        """See `Session.spend`."""
        self._thread.call(lambda: self._session.spend(tokens=tokens, money=money))

    def cite(self, id: str) -> bool:
        """See `Session.cite`."""
        return self._thread.call(lambda: self._session.cite(id))

    def fail(self, reward: float | None = None) -> None:
        """See `Session.fail`."""
        self._session.fail(reward)


class BlockingAction:
    """`fleetlore.Action` as an ordinary context manager."""

    def __init__(self, thread: _LoopThread, action: Action) -> None:
        self._thread = thread
        self._action = action

    @property
    def result(self) -> object:
        """What the tool gave; set it."""
        return self._action.result

    @result.setter
    def result(self, value: object) -> None:
        self._action.result = value

    def fail(self, error_type: str, message: str = "") -> None:
        """See `Action.fail`."""
        self._action.fail(error_type, message)

    def forbid(self, rule: str) -> None:
        """See `Action.forbid`."""
        self._action.forbid(rule)

    def __enter__(self) -> Self:
        self._thread.run(self._action.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.run(self._action.__aexit__(kind, error, traceback))
