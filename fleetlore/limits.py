"""Bound what callers make a process hold, and count what it refuses."""

import logging
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import AsyncIterable, Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["Share", "Shares", "bounded", "process_lock", "refusals", "refused"]

log = logging.getLogger(__name__)


def process_lock() -> threading.Lock:
    """Return a lock that is free in each forked process. No thread of the child could release a held one."""
    lock = threading.Lock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


_counting = process_lock()
_refused: Counter[str] = Counter()


def refused(reason: str, detail: str) -> None:
    """Count a refusal, and log the first, second, fourth, eighth … of a reason. `reason` is a metric label."""
    with _counting:
        _refused[reason] += 1
        count = _refused[reason]
    if count & (count - 1) == 0:
        log.warning("refused %d times so far (%s): %s", count, reason, detail)


def refusals() -> dict[str, int]:
    with _counting:
        return dict(_refused)


async def bounded(parts: AsyncIterable[bytes], most: int) -> bytes | None:
    """Join the parts of a body. Return None as soon as it is too large."""
    found: list[bytes] = []
    async for part in parts:
        found.append(part)
        most -= len(part)
        if most < 0:
            return None
    return b"".join(found)


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Share = tuple[Hashable, Hashable]


class Shares(Generic[Key, Value]):
    """A bounded dictionary. When full, the longest unused entry of the largest tenant's largest caller gives way.

    `left`: called with each entry that gave way.
    """

    # Limit for a caller's entries, as `resize` states them.
    _most_bytes = 32 * 1024 * 1024

    def __init__(self, limit: int, name: str, left: Callable[[Key, Value], None] = lambda key, value: None) -> None:
        self._limit, self._name, self._left = limit, name, left
        self._sizes: dict[Key, int] = {}
        self._bytes = Counter[Share]()
        self._owners: dict[Key, Share] = {}
        self._tenants: dict[Hashable, _Tenant[Key, Value]] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def __contains__(self, key: Key) -> bool:
        return key in self._owners

    def get(self, key: Key) -> Value | None:
        if key not in self._owners:
            return None
        tenant, name = self._owners[key]
        held = self._tenants[tenant].held[name]
        held.move_to_end(key)
        return held[key]

    def put(self, owner: Share, key: Key, value: Value) -> None:
        """Add or replace an entry."""
        if key in self._owners:
            owner = self._owners[key]
        elif len(self._owners) >= self._limit:
            self._drop_oldest(owner)
        tenant, name = self._owners[key] = owner
        self._tenants.setdefault(tenant, _Tenant()).put(name, key, value)

    def pop(self, key: Key) -> Value | None:
        if key not in self._owners:
            return None
        tenant, name = owner = self._owners.pop(key)
        self._bytes[owner] -= self._sizes.pop(key, 0)
        if not self._bytes[owner]:
            del self._bytes[owner]
        held = self._tenants[tenant]
        value = held.pop(name, key)
        if not held.count:
            del self._tenants[tenant]
        return value

    def resize(self, key: Key, size: int) -> None:
        """State the size of an entry in bytes. Its caller's longest unused entries may give way."""
        if key not in self._owners:
            return
        tenant, name = owner = self._owners[key]
        self._bytes[owner] += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        while self._bytes[owner] > self._most_bytes:
            why = f"{name!r} keeps more than {self._most_bytes} bytes: its oldest is forgotten"
            self._drop(self._tenants[tenant].held[name], "too_large", why)

    def _drop_oldest(self, owner: Share) -> None:
        tenant, name = owner
        held = max(self._tenants.values(), key=lambda each: each.count)
        if (own := self._tenants.get(tenant)) is not None and own.count == held.count:
            held = own
        largest = held.largest(name if held is own else None)
        why = f"there are more than {self._limit}: the oldest of {largest!r} is forgotten"
        self._drop(held.held[largest], "forgotten", why)

    def _drop(self, held: OrderedDict[Key, Value], reason: str, why: str) -> None:
        key, value = next(iter(held.items()))
        self.pop(key)
        refused(f"{self._name}_{reason}", why)
        self._left(key, value)


class _Tenant(Generic[Key, Value]):
    def __init__(self) -> None:
        self.held: dict[Hashable, OrderedDict[Key, Value]] = {}
        self.count = 0
        # Callers by number of entries: a flood of names must not slow the search.
        self._by_size: dict[int, dict[Hashable, None]] = {}
        self._largest = 0

    def largest(self, preferred: Hashable) -> Hashable:
        names = self._by_size[self._largest]
        return preferred if preferred in names else next(iter(names))

    def put(self, name: Hashable, key: Key, value: Value) -> None:
        held = self.held.setdefault(name, OrderedDict())
        before = len(held)
        held[key] = value
        held.move_to_end(key)
        if len(held) > before:
            self._resize(name, before, before + 1)

    def pop(self, name: Hashable, key: Key) -> Value:
        held = self.held[name]
        value = held.pop(key)
        self._resize(name, len(held) + 1, len(held))
        if not held:
            del self.held[name]
        return value

    def _resize(self, name: Hashable, before: int, now: int) -> None:
        self.count += now - before
        if before:
            del self._by_size[before][name]
            if not self._by_size[before]:
                del self._by_size[before]
        if now:
            self._by_size.setdefault(now, {})[name] = None
        if now > self._largest or self._largest not in self._by_size:
            self._largest = now
