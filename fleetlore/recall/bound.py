"""Bound the lore in an agent's memory, by the tools in use and by evidence."""

from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from sys import intern
from typing import NamedTuple

import msgspec

from fleetlore.wire.decode import json_reader
from fleetlore.wire.lore import standing
from fleetlore.wire.trajectory import Count, Moment

__all__ = ["Bound", "backing_of_item", "backing_of_pattern"]

# Bytes of memory for a byte of JSON in the index, and for an entry besides. Traced with logged runs.
_PATTERN_BYTES, _ITEM_BYTES, _ENTRY_BYTES = 2.2, 2.5, 870


class Backing(NamedTuple):
    """The figures that decide whether an entry is held. `bytes`: of memory, estimated."""

    tool: str
    standing: float
    bytes: int


class _Item(msgspec.Struct):
    tool: str = ""
    agents: Count = 0
    support: Count = 0
    against: Count = 0
    last_seen: Moment = 0.0


class _Pattern(_Item):
    support: Count = msgspec.field(default=0, name="sessions")


def _backing(read: Callable[[bytes], _Item], memory: float, value: bytes) -> Backing:
    head = read(value)
    stands = standing(head.agents, head.support, head.against, head.last_seen)
    return Backing(intern(head.tool), stands, int(memory * len(value)) + _ENTRY_BYTES)


backing_of_item = partial(_backing, json_reader(_Item), _ITEM_BYTES)
backing_of_pattern = partial(_backing, json_reader(_Pattern), _PATTERN_BYTES)


class Bound:
    """Decides which entries are held. `left_out`: entries that did not fit since the last reading from the beginning.
    New versions count again.
    """

    def __init__(self, most_bytes: float) -> None:
        self.left_out = 0
        self.most_bytes = most_bytes
        self._bytes = 0
        self._held: dict[str, Backing] = {}
        self._own_tools: set[str] = set()
        self._tools_left_out: set[str] = set()
        # The weakest first, some of them outdated. Empty until something is left out.
        self._weakest: list[tuple[int, float, str]] = []

    def __contains__(self, id: object) -> bool:
        return id in self._held

    def prefer(self, tool: str) -> bool:
        """Prefer entries of this tool. Return whether some of them were left out."""
        if tool in self._own_tools:
            return False
        self._own_tools.add(tool)
        self._weakest.clear()
        return tool in self._tools_left_out

    def take(self, id: str, backing: Backing) -> list[str]:
        """Hold an entry, or its newer version. Return ids that must go for it, possibly its own."""
        self.drop(id)
        self._held[id] = backing
        self._bytes += backing.bytes
        if len(self._weakest) > 2 * len(self._held):
            self._weakest.clear()
        elif self._weakest:
            heappush(self._weakest, self._rank(id, backing))
        gone: list[str] = []
        while self._bytes > self.most_bytes:
            gone.append(self._drop_weakest())
        return gone

    def drop(self, id: str) -> None:
        backing = self._held.pop(id, None)
        if backing is not None:
            self._bytes -= backing.bytes

    def start_over(self) -> None:
        self.left_out = 0
        self._tools_left_out.clear()

    def forget_all(self) -> None:
        self.start_over()
        self._held.clear()
        self._weakest.clear()
        self._bytes = 0

    def _drop_weakest(self) -> str:
        if not self._weakest:
            self._weakest = [self._rank(id, backing) for id, backing in self._held.items()]
            heapify(self._weakest)
        while True:
            rank = heappop(self._weakest)
            backing = self._held.get(rank[-1])
            if backing is not None and self._rank(rank[-1], backing) == rank:
                self.drop(rank[-1])
                self.left_out += 1
                self._tools_left_out.add(backing.tool)
                return rank[-1]

    def _rank(self, id: str, backing: Backing) -> tuple[int, float, str]:
        return 2 if backing.tool in self._own_tools else 0 if backing.tool else 1, backing.standing, id
