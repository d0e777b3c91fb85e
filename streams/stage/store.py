"""What the stages need of the store: so that they run on Milvus and, in tests, on a dictionary."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol


class Store(Protocol):
    """Rows by id; see `sinks.milvus.MilvusStore`, which is the real one."""

    async def resolve(self, collection: str) -> str: ...

    async def upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None: ...

    async def get(self, collection: str, ids: Sequence[str], *fields: str) -> dict[str, dict[str, Any]]: ...

    def rows(self, collection: str, tenant: str, *fields: str, **equal: str) -> AsyncIterator[dict[str, Any]]: ...
