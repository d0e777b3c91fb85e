"""Stream what changes in a tenant's lore, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fleetlore.recall.index import LoreIndex
from fleetlore.wire.lore import MemoryItem, Pattern

__all__ = ["Changes"]

_LOOK_SECONDS = 0.25
# A proxy between closes what is silent for long.
_SILENT_SECONDS = 15.0
_MOST_WAITING = 1024
_READY = b"event: ready\ndata: {}\n\n"
# The listener is too slow: it reads the lore anew and listens again.
_BEHIND = b"event: behind\ndata: {}\n\n"


class Changes:
    """What changes in an index, for any number of listeners; nobody looks where nobody listens."""

    def __init__(self, index: LoreIndex) -> None:
        self._index = index
        self._listeners: set[asyncio.Queue[bytes]] = set()
        self._task: asyncio.Task[None] | None = None

    async def listen(self) -> AsyncIterator[bytes]:
        """Events `pattern` and `item`, whole, and `forgotten`, an id, after one `ready`; ends with `behind`."""
        waiting: asyncio.Queue[bytes] = asyncio.Queue(_MOST_WAITING)
        self._listeners.add(waiting)
        if self._task is None:
            self._task = asyncio.create_task(self._look(self._entries()), name="fleetlore-changes")
        try:
            yield _READY
            while not waiting.full():
                try:
                    yield await asyncio.wait_for(waiting.get(), _SILENT_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
            yield _BEHIND
        finally:
            self._listeners.discard(waiting)
            if not self._listeners and self._task is not None:
                self._task.cancel()
                self._task = None

    def _entries(self) -> dict[str, Pattern | MemoryItem]:
        return {**self._index.patterns, **self._index.items}

    async def _look(self, before: dict[str, Pattern | MemoryItem]) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = self._entries()
            told = [_told(each) for id, each in now.items() if before.get(id) is not each]
            told += [b'event: forgotten\ndata: {"id":"%b"}\n\n' % id.encode() for id in before.keys() - now.keys()]
            before = now
            for waiting in self._listeners:
                for each in told[: _MOST_WAITING - waiting.qsize()]:
                    waiting.put_nowait(each)


def _told(entry: Pattern | MemoryItem) -> bytes:
    kind = b"pattern" if isinstance(entry, Pattern) else b"item"
    return b"event: %b\ndata: %b\n\n" % (kind, entry.to_json())
