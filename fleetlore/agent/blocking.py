"""Offer the same fleet to agents without asyncio: same names, no `async`.

    with BlockingFleet("billing-agent", data="./lore") as fleet:
        with fleet.session("refund order 17") as session:
            with session.action("sql", {"query": query}) as action:
                action.result = run(query)
            session.succeed()

The fleet lives on an event loop of its own, in one background thread. It may be used from several threads at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from fleetlore.advice.advice import Advice
from fleetlore.agent.fleet import Fleet
from fleetlore.agent.lifetime import Lifetime
from fleetlore.agent.session import RECALLED, Session
from fleetlore.agent.session_events import SessionOptions, arguments_of
from fleetlore.calls.model import CallModel
from fleetlore.errors import NotOpen
from fleetlore.store.search import SEARCH_SECONDS
from fleetlore.wire.events import Outcome

if TYPE_CHECKING:
    from fleetlore.retrieval.adapter import RetrievalSlot

__all__ = ["BlockingFleet", "BlockingSession"]

Result = TypeVar("Result")


class _LoopThread:
    """An event loop on a daemon thread: an agent that forgets to close its fleet can still exit."""

    def __init__(self) -> None:
        self.lifetime = Lifetime("a BlockingFleet")
        self.lifetime.enter()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fleetlore", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of some work on the loop. Raises NotOpen where no loop would ever do it."""
        try:
            self.lifetime.check()
        except NotOpen:
            work.close()
            raise
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
        self.lifetime.leave()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class BlockingFleet:
    """`fleetlore.Fleet` as an ordinary context manager; the arguments are the same."""

    @arguments_of(Fleet)
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
            raise NotOpen("a BlockingFleet was not entered: use it inside its `with` block")
        return self._open

    def __repr__(self) -> str:
        return "<BlockingFleet, new>" if self._open is None else f"<Blocking{repr(self._fleet)[1:]}"

    def __enter__(self) -> Self:
        if self._open is not None and self._thread.lifetime.open_in:
            raise NotOpen("a BlockingFleet is entered inside its own `with` block, or in a process forked there")
        thread = _LoopThread()
        try:
            fleet = thread.call(self._make)
            fleet.session_type = partial(BlockingSession, thread)
            thread.run(fleet.start())
        except BaseException:
            thread.close()
            raise
        self._open = (thread, fleet)
        return self

    def __exit__(self, *_: object) -> None:
        thread, fleet = self._entered()
        if thread.lifetime.is_forked:
            return  # the parent's
        try:
            thread.run(fleet.close())
        finally:
            thread.close()

    def ready(self, timeout_seconds: float) -> bool:
        """See `Fleet.ready`."""
        return self._thread.run(self._fleet.ready(timeout_seconds))

    @arguments_of(SessionOptions)
    def session(self, *args: Any, **kwargs: Any) -> BlockingSession:
        """See `Fleet.session`."""
        return cast(BlockingSession, self._fleet.session(*args, **kwargs))

    def feedback(self, session_id: str, outcome: Outcome, reward: float | None = None) -> bool:
        """See `Fleet.feedback`."""
        return self._fleet.feedback(session_id, outcome, reward)

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
    def left_out(self) -> int:
        """See `Fleet.left_out`."""
        return self._fleet.left_out

    @property
    def on_advice(self) -> list[Callable[[str, Advice], None]]:
        """See `Fleet.on_advice`."""
        return self._fleet.on_advice

    @property
    def call_model(self) -> CallModel | None:
        """See `Fleet.call_model`."""
        return self._fleet.call_model

    @property
    def call_model_version(self) -> str | None:
        """See `Fleet.call_model_version`."""
        return self._fleet.call_model_version

    @property
    def retrieval(self) -> RetrievalSlot | None:
        """See `Fleet.retrieval`."""
        return self._fleet.retrieval

    @property
    def adapter_version(self) -> str | None:
        """See `Fleet.adapter_version`."""
        return self._fleet.adapter_version


class BlockingSession(Session):
    """`fleetlore.Session` of a `BlockingFleet`: nothing of it is to be awaited."""

    def __init__(self, thread: _LoopThread, fleet: Fleet, options: SessionOptions) -> None:
        super().__init__(fleet, options)
        self._thread = thread

    def recall(  # type: ignore[override]
        self, text: str, most: int = RECALLED, *, timeout_seconds: float = SEARCH_SECONDS
    ) -> Advice:
        """See `Session.recall`."""
        return self._thread.run(super().recall(text, most, timeout_seconds=timeout_seconds))
