"""Send that a call was made where it does not end soon. Of any other its outcome says all: one event a call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from fleetlore.clock import Clock

__all__ = ["LongCalls"]

_LOOK_SECONDS = 0.5


class _Open(NamedTuple):
    call: object  # held, so that no other has its identity
    began: float
    session: object
    send: Callable[[], None]


class LongCalls:
    """The calls of a fleet that are under way.

    Args:
        lock: the fleet's, which is held by whoever calls `begin`, `end` and `leave`.
        seconds: how long a call runs before it is sent; 0 sends each as it begins.
    """

    def __init__(self, clock: Clock, lock: threading.RLock, seconds: float) -> None:
        self._clock, self._lock, self._seconds = clock, lock, seconds
        self._open: dict[int, _Open] = {}  # in the order in which they began
        self._task: asyncio.Task[None] | None = None

    def begin(self, call: object, session: object, send: Callable[[], None]) -> None:
        """Note a call of a session, told by its identity; `send` sends that it was made."""
        if not self._seconds:
            send()
            return
        self._open[id(call)] = _Open(call, self._clock.monotonic(), session, send)

    def end(self, call: object) -> None:
        """Forget it: its outcome says that it was made."""
        self._open.pop(id(call), None)

    def leave(self, session: object) -> None:
        """Send the calls of a session that ends before they do."""
        for key in [key for key, each in self._open.items() if each.session is session]:
            self._open.pop(key).send()

    def start(self) -> None:
        """Begin to look, in the running loop."""
        self._task = asyncio.create_task(self._look(), name="fleetlore-long-calls")

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def send_due(self) -> None:
        """Send the calls that have run for long enough."""
        with self._lock:
            latest = self._clock.monotonic() - self._seconds
            while self._open:
                key, first = next(iter(self._open.items()))
                if first.began > latest:
                    return
                del self._open[key]
                first.send()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.send_due()
