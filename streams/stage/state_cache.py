"""States that many sessions contribute to: read where they are not known, merged, remembered while they are used.

Each state has a single writer, because all contributions to it lie on one partition. What is remembered is a cache of the
store and nothing more: it is dropped when partitions move, and when the collection's name comes to mean another one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from sinks.milvus import row_id
from streams.stage.store import Store

S = TypeVar("S")

REMEMBERED_STATES = 50_000


class StateCache(Generic[S]):
    """The states of one collection, by tenant and id.

    Attributes:
        source: what the collection was really called when it was last read.
    """

    def __init__(self, store: Store, collection: str, restore: Callable[[dict[str, Any]], S]) -> None:
        self._store = store
        self._collection = collection
        self._restore = restore
        self._states: OrderedDict[str, S] = OrderedDict()
        self._stored: dict[str, set[int]] = {}
        self.source = ""

    async def load(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], S]:
        """The states of (tenant, id) that exist, in the store or in memory.

        Raises:
            StoreUnavailable: nothing has changed then.
        """
        rows = {row_id(tenant, id): (tenant, id) for tenant, id in keys}
        source = await self._store.resolve(self._collection)
        if source != self.source:
            # A backfill has taken the name over: what was read before is of another collection.
            self.forget()
            self.source = source
        for tenant in {tenant for tenant, _ in rows.values()}:
            if tenant not in self._stored:
                self._stored[tenant] = {hash(row["id"]) async for row in self._store.rows(self._collection, tenant)}
        unknown = [
            row for row, (tenant, _) in rows.items() if row not in self._states and hash(row) in self._stored[tenant]
        ]
        if unknown:
            for row, fields in (await self._store.get(self._collection, unknown, "body", "state")).items():
                self._states[row] = self._restore(fields)
        found: dict[tuple[str, str], S] = {}
        for row, key in rows.items():
            if row in self._states:
                self._states.move_to_end(row)
                found[key] = self._states[row]
        return found

    def remember(self, tenant: str, id: str, state: S) -> None:
        """Keep a new state, which the caller is about to write; `load` was asked for it before."""
        row = row_id(tenant, id)
        self._states[row] = state
        self._stored[tenant].add(hash(row))
        while len(self._states) > REMEMBERED_STATES:
            self._states.popitem(last=False)

    def forget(self) -> None:
        self._states.clear()
        self._stored.clear()
