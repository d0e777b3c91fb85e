"""Pair calls with their results, where ids are unique and where they are empty, missing or repeated.

A unique id decides. Other calls of one turn are answered in order, or by the tool that a result names. A turn ends when
a person speaks, and when a call follows a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Generic, TypeVar

__all__ = ["OpenCalls"]

T = TypeVar("T")
# An id and a tool; None stands for any.
_Key = tuple[str | None, str | None]


class OpenCalls(Generic[T]):
    """Calls that wait for their results."""

    def __init__(self, leave: Callable[[T], object], limit: int = 2**62) -> None:
        self._leave, self._limit = leave, limit
        self._numbers = count()
        # By number, in the order in which they were made: the call, its keys, and whether its id says nothing.
        self._open: dict[int, tuple[T, str, str]] = {}
        self._by: dict[_Key, dict[int, None]] = {}
        # Calls of this turn alone can be answered by a result without an id.
        self._turn: dict[_Key, dict[int, None]] = {}
        self._turn_start = 0
        self._is_answered = False

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[T]:
        return (call for call, _, _ in self._open.values())

    def __contains__(self, id: str) -> bool:
        return (id, None) in self._by

    def add(self, id: str, tool: str, call: T) -> None:
        """A call is made. One of an earlier turn that has its id gets no result any more."""
        if self._is_answered:
            self.end_turn()
        for number in [each for each in self._by.get((id, None), ()) if each < self._turn_start]:
            self._leave(self._removed(number))
        number = next(self._numbers)
        self._open[number] = call, id, tool
        for held, first in ((self._by, id), (self._turn, None)):
            for named in (None, tool):
                held.setdefault((first, named), {})[number] = None
        if len(self._open) > self._limit:
            self._leave(self._removed(next(iter(self._open))))

    def pop(self, id: str, tool: str = "") -> T | None:
        """The call that a result answers; None if there is none."""
        # A result may have an id of which its call has none. Some makers give the name of the tool in its place.
        keys: list[_Key] = [(id, tool), (id, None)] if id else []
        keys += [("", tool or id), ("", None)]
        found = next((self._by[key] for key in keys if key in self._by), None)
        if found is None and not id:
            found = self._turn.get((None, tool)) or self._turn.get((None, None))
        if not found:
            return None
        self._is_answered = True
        return self._removed(next(iter(found)))

    def end_turn(self) -> None:
        """Leave the calls without an id: what comes later answers later calls."""
        self._is_answered = False
        for number in list(self._by.get(("", None), ())):
            self._leave(self._removed(number))
        self._turn = {}
        self._turn_start = next(self._numbers)

    def close(self) -> None:
        """Leave all of them."""
        while self._open:
            self._leave(self._removed(next(iter(self._open))))

    def _removed(self, number: int) -> T:
        call, id, tool = self._open.pop(number)
        for held, first in ((self._by, id), (self._turn, None)):
            for named in (None, tool):
                if (numbers := held.get((first, named))) is not None:
                    numbers.pop(number, None)
                    if not numbers:
                        del held[first, named]
        return call
