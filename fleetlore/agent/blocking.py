"""Offer the same fleet to agents without asyncio: same names, no `async`.

The fleet lives on an event loop in one background thread. Several threads may use it at once.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, Self, TypeVar

from fleetlore.advice.advice import Advice
from fleetlore.agent.fleet import Fleet
from fleetlore.agent.session import RECALLED, Session
from fleetlore.agent.session_parts import SessionOptions, arguments_of
from fleetlore.errors import NotOpen
from fleetlore.recall.search import SEARCH_SECONDS

__all__ = ["BlockingFleet", "BlockingSession"]

Result = TypeVar("Result")


class _LoopThread:
    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)  # else it is the caller's loop as well
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._serve, name="fleetlore", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with self._runner:
            self._loop.run_forever()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class BlockingFleet(Fleet):
    """`fleetlore.Fleet` as an ordinary context manager; the arguments are the same. The exit closes an open one."""

    _thread: _LoopThread

    def start(self) -> None:  # type: ignore[override]
        thread = _LoopThread()
        try:
            thread.run(super().start())
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        atexit.register(self.close)

    def close(self, timeout_seconds: float = 2.0) -> None:  # type: ignore[override]
        if not self._lifetime.is_open:
            return
        atexit.unregister(self.close)
        try:
            self._thread.run(super().close(timeout_seconds))
        finally:
            self._thread.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> NoReturn:
        raise NotOpen("a BlockingFleet has no `async with`: use `with`")

    @arguments_of(SessionOptions)
    def session(self, *args: Any, **kwargs: Any) -> BlockingSession:
        return BlockingSession(self, SessionOptions(*args, **kwargs))

    def ready(self, timeout_seconds: float) -> bool:  # type: ignore[override]
        return self.wait(lambda: super(BlockingFleet, self).ready(timeout_seconds))

    def flush(self, timeout_seconds: float) -> bool:  # type: ignore[override]
        return self.wait(lambda: super(BlockingFleet, self).flush(timeout_seconds))

    def wait(self, make: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Return the result of some work. Raises NotOpen if the loop has ended."""
        self._lifetime.check()
        return self._thread.run(make())


class BlockingSession(Session):
    """`fleetlore.Session` of a `BlockingFleet`, without `await`."""

    def __init__(self, fleet: BlockingFleet, options: SessionOptions) -> None:
        super().__init__(fleet, options)
        self._wait = fleet.wait

    def recall(  # type: ignore[override]
        self, text: str, most: int = RECALLED, *, timeout_seconds: float = SEARCH_SECONDS
    ) -> Advice:
        return self._wait(lambda: super(BlockingSession, self).recall(text, most, timeout_seconds=timeout_seconds))
