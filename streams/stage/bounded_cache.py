"""Keep what was used last, within so many bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["BoundedCache"]

Key = TypeVar("Key", bound=Hashable)
_Value = TypeVar("_Value")


class BoundedCache(Generic[Key, _Value]):
    """An LRU cache. Its values may change: each is weighed again whenever it is put.

    Args:
        weigh: how many bytes a value takes up, about.
        most_bytes: of all of them. Only `trim` heeds it, so that nothing that is in use goes.
    """

    def __init__(self, weigh: Callable[[_Value], int], most_bytes: int) -> None:
        self._weigh = weigh
        self._most_bytes = most_bytes
        self._values: OrderedDict[Key, tuple[_Value, int]] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> _Value | None:
        found = self._values.get(key)
        return None if found is None else found[0]

    def items(self) -> list[tuple[Key, _Value]]:
        """All of them, the one that was put last at the end."""
        return [(key, value) for key, (value, _) in self._values.items()]

    def put(self, key: Key, value: _Value) -> None:
        """Keep a value, as the one that was used last."""
        _, before = self._values.pop(key, (None, 0))
        weight = self._weigh(value)
        self._values[key] = value, weight
        self.bytes += weight - before

    def trim(self) -> None:
        """Let go of those that were not used for longest, until the rest is within the bound."""
        while self.bytes > self._most_bytes:
            _, (_, weight) = self._values.popitem(last=False)
            self.bytes -= weight

    def clear(self) -> None:
        self._values.clear()
        self.bytes = 0
