"""Store failure patterns, judgments and memory items in Milvus, one collection each.

Rows have deterministic ids, `<tenant>/<id>`, so upserts are idempotent. The tenant is the partition key. `body` is the
row's public form as JSON, `state` is for its single writer, and the other columns are filters.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from math import inf
from typing import Any, Self, TypeVar

import fleetlore.recall.without_pandas  # noqa: F401

# isort: split
from grpc import RpcError, StatusCode
from pymilvus import DataType, MilvusClient, MilvusException
from pymilvus.exceptions import DataNotMatchException, ParamError

from fleetlore.clock import Clock, SystemClock
from fleetlore.config import Settings
from fleetlore.errors import RowRefused, StoreUnavailable
from fleetlore.recall.encoder import Encoder, installed_encoder
from fleetlore.recall.search import TEXT, VECTOR, connect, message_of, quoted
from sinks.collections import (
    COLLECTIONS,
    PLACEHOLDER,
    TEXT_BYTES,
    Collection,
    alias_of,
    can_be_id,
    create_collections,
    versioned_name,
)
from sinks.metrics import Metrics

__all__ = ["RESOLVE_SECONDS", "MilvusStore"]

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_ROWS_PER_CALL = 1_000  # Milvus Lite writes these three times as fast as hundreds
_MAX_IDS_PER_GET = 500
# No row has this id, because ids begin with a tenant.
_NO_ROW = "/"
_TIMEOUT_SECONDS = 30.0
_ROWS_PER_PAGE = 1_000
_OPEN_PAUSE_SECONDS = 0.2
_IDS_PER_PAGE = 16_000  # Milvus returns at most 16,384 rows a page
RESOLVE_SECONDS = 2.0
REFRESH_SECONDS = 1.0
_DETAIL_CHARACTERS = 500

# Milvus' error codes for a row that it will never accept. Milvus Lite always uses 6.
_REFUSALS = frozenset({1100, 1101, 1102, 1700, 1701, 1804, 6})

# The collection is not in memory, as after a restart.
_NOT_LOADED = 101

_COLLECTIONS = {each.name: each for each in COLLECTIONS}


@dataclass(eq=False, repr=False)
class MilvusStore:
    """The three collections. Calls run in threads, because pymilvus blocks.

    Without an `encoder`, items are searched by words. `version`: None for the live one. `write_seconds`: a write's
    deadline. `check`: called directly before each write; its errors propagate. Methods raise `StoreUnavailable` if
    Milvus does not answer or refuses for a transient reason.
    """

    uri: str
    token: str
    encoder: Encoder | None
    metrics: Metrics = field(default_factory=partial(Metrics, "store"))
    version: str | None = None
    _: KW_ONLY
    clock: Clock = field(default_factory=SystemClock)
    timeout_seconds: float = _TIMEOUT_SECONDS
    write_seconds: float = _TIMEOUT_SECONDS
    check: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._client: MilvusClient | None = None
        self._schemas: dict[str, dict[str, Any]] = {}
        self._resolved: dict[str, tuple[float, str]] = {}
        self._asked: dict[str, asyncio.Task[tuple[float, str]]] = {}

    @classmethod
    def from_settings(cls, settings: Settings, **options: Any) -> Self:
        return cls(settings.milvus, settings.milvus_token, installed_encoder(), **options)

    async def open(self) -> bool:
        """Create missing collections. Return whether any was missing."""
        return await self.on_client(lambda client: create_collections(client, self.encoder, self.version))

    async def open_within(
        self, seconds: float, waiting: Callable[[StoreUnavailable], None] = lambda error: None
    ) -> None:
        last = self.clock.monotonic() + seconds
        while True:
            try:
                await self.open()
                return
            except StoreUnavailable as error:
                if self.clock.monotonic() > last:
                    raise
                waiting(error)
            await asyncio.sleep(_OPEN_PAUSE_SECONDS)

    async def has_collections(self) -> bool:
        return await self.on_client(lambda client: all(client.has_collection(each.name) for each in COLLECTIONS))

    async def close(self) -> None:
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
        self._asked.clear()
        if self._client is not None:
            await asyncio.to_thread(self._client.close)
            self._client = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def on_client(self, work: Callable[[MilvusClient], T]) -> T:
        return await self._call(lambda: work(self._open_client()))

    async def resolve(self, collection: str) -> str:
        """Return the alias's collection, which `get` reads until the next call.

        A writer resolves before it reads rows to write back, so no row moves between versions. A switch reaches every
        writer within `RESOLVE_SECONDS` and one batch.
        """
        if self.version is not None:
            return versioned_name(collection, self.version)
        known, asked = self._resolved.get(collection), self._asked.get(collection)
        if asked is not None and asked.done():
            del self._asked[collection]
            # Only here: rows of one collection may not be written to another.
            if asked.exception() is None:
                known = self._resolved[collection] = asked.result()
        age = inf if known is None else self.clock.monotonic() - known[0]
        if known is None or age >= RESOLVE_SECONDS:
            known = self._resolved[collection] = await self._ask(collection)
        elif age >= REFRESH_SECONDS and collection not in self._asked:
            # Ask before the answer expires: Milvus may be busy, and a new failure would wait.
            self._asked[collection] = asyncio.create_task(self._ask(collection))
        return known[1]

    async def _ask(self, collection: str) -> tuple[float, str]:
        now = self.clock.monotonic()
        described = await self._call(lambda: self._open_client().describe_collection(collection))
        return now, described["collection_name"]

    async def upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None:
        """Upsert rows, the last one of each id. `text` is their searchable text.

        Raises RowRefused: Milvus will never accept some rows; all others are written.
        """
        unique = list({row["id"]: row for row in rows}.values())
        refused: list[tuple[str, str]] = []
        alias = alias_of(collection)
        with self.metrics.sink_duration.labels(alias).time():
            for start in range(0, len(unique), MAX_ROWS_PER_CALL):
                chunk = unique[start : start + MAX_ROWS_PER_CALL]
                refused += await self._call(partial(self._upsert, collection, chunk))
        self.metrics.sink_rows.labels(alias).inc(len(unique) - len(refused))
        if refused:
            raise RowRefused(collection, tuple(id for id, _ in refused), refused[0][1])

    async def get(self, collection: str, ids: Sequence[str], *fields: str) -> dict[str, dict[str, Any]]:
        """Return rows by id. An id that Milvus refuses counts as missing, so that it stops no other session."""
        found: list[dict[str, Any]] = []

        def read(filter: str) -> None:
            target, read_fields = self._target(collection), ["id", *fields]
            found.extend(self._open_client().query(target, filter=filter, output_fields=read_fields))

        for id, detail in await self._by_ids(read, ids):
            log.error("%s has no row %r: Milvus at %s refuses to look for it: %s", collection, id, self.uri, detail)
        wanted = set(ids)
        return {row["id"]: row for row in found if row["id"] in wanted}

    async def delete(self, collection: str, ids: Sequence[str]) -> None:
        def delete(filter: str) -> None:
            self._open_client().delete(self._target(collection), filter=filter)

        if refused := await self._by_ids(delete, ids):
            raise RowRefused(collection, tuple(id for id, _ in refused), refused[0][1])

    async def _by_ids(self, work: Callable[[str], object], ids: Sequence[str]) -> list[tuple[str, str]]:
        def on_ids(chunk: list[str]) -> None:
            work(f"id in [{', '.join(map(quoted, chunk))}]")

        def ask(chunk: list[str]) -> list[tuple[str, str]]:
            refused = _all_but_refused(on_ids, chunk)
            if refused:
                on_ids([_NO_ROW])  # if Milvus refuses this too, the ids are not the reason
            return [(id, message_of(error)[:_DETAIL_CHARACTERS]) for id, error in refused]

        possible = [id for id in ids if can_be_id(id)]
        refused: list[tuple[str, str]] = []
        for start in range(0, len(possible), _MAX_IDS_PER_GET):
            refused += await self._call(partial(ask, possible[start : start + _MAX_IDS_PER_GET]))
        return refused

    async def purge(self) -> bool:
        """Flush and compact: deleted rows leave the files. Return whether a cluster goes on with it."""

        def flush_and_compact(client: MilvusClient) -> bool:
            for collection in COLLECTIONS:
                name = client.describe_collection(self._target(collection.name))["collection_name"]
                client.flush(name)
                client.compact(name)
            return not str(client.get_server_version()).startswith("milvus_lite")

        return await self.on_client(flush_and_compact)

    async def rows(self, collection: str, tenant: str, *fields: str, **equal: str) -> AsyncIterator[dict[str, Any]]:
        condition = " and ".join(f"{name} == {quoted(value)}" for name, value in {"tenant": tenant, **equal}.items())
        target = self._target(collection)
        if target in _COLLECTIONS:
            target = (await self._ask(collection))[1]  # all pages must be of one version
        last = ""

        def page() -> list[dict[str, Any]]:
            # pymilvus' own iterator puts ids into its filter without escaping
            found: list[dict[str, Any]] = self._open_client().query(
                target,
                filter=f"id > {quoted(last)} and {condition}",
                output_fields=["id", *fields],
                # An embedded Milvus scans all rows for every page.
                limit=_ROWS_PER_PAGE if fields else _IDS_PER_PAGE,
                # return pages in the order of ids
                iterator="True",
                reduce_stop_for_best="True",
            )
            return found

        while rows := await self._call(page):
            for row in rows:
                yield row
            last = rows[-1]["id"]

    def _upsert(self, collection: str, rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
        """zlib would cost more CPU than the larger row."""
        shape = _COLLECTIONS[alias_of(collection)]
        ready = [
            {
                **{name: row[name] for name in ("id", "tenant", "body")},
                "state": row.get("state", ""),
                **{name: _clip(row.get(name) or "", length) for name, length in shape.columns},
                **found_by,
            }
            for row, found_by in zip(rows, self._found_by(shape, rows), strict=True)
        ]
        refused = _all_but_refused(partial(self._send, self._target(collection)), ready)
        return [(row["id"], message_of(error)[:_DETAIL_CHARACTERS]) for row, error in refused]

    def _found_by(self, shape: Collection, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if not shape.by_words:
            return [{VECTOR: PLACEHOLDER}] * len(rows)
        texts = [_clip(row["text"], TEXT_BYTES) for row in rows]
        if not shape.by_meaning or self.encoder is None:
            return [{TEXT: text} for text in texts]
        vectors = self.encoder.encode(texts).tolist()
        return [{TEXT: text, VECTOR: vector} for text, vector in zip(texts, vectors, strict=True)]

    def _send(self, target: str, rows: list[dict[str, Any]]) -> None:
        """`MilvusClient.upsert` checks each character: ten times the CPU for 2 KB rows."""
        client = self._open_client()
        if target not in self._schemas:
            self._schemas[target] = client.describe_collection(target)
        types = {name: DataType.FLOAT_VECTOR if name == VECTOR else DataType.VARCHAR for name in rows[0]}
        columns = [{"name": name, "type": type, "values": [row[name] for row in rows]} for name, type in types.items()]
        self.check()
        seconds = min(self.write_seconds, self.timeout_seconds)
        context, schema = client._generate_call_context(), self._schemas[target]
        client._get_connection().upsert(target, columns, timeout=seconds, schema=schema, context=context)

    def _target(self, collection: str) -> str:
        if collection not in _COLLECTIONS:
            return collection
        if self.version is not None:
            return versioned_name(collection, self.version)
        known = self._resolved.get(collection)
        return known[1] if known else collection

    def _open_client(self) -> MilvusClient:
        if self._client is None:
            self._client = connect(self.uri, self.token, self.timeout_seconds)
        return self._client

    async def _call(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except (MilvusException, RpcError) as error:
            if getattr(error, "code", None) == _NOT_LOADED:
                with contextlib.suppress(MilvusException, RpcError):
                    await asyncio.to_thread(self._load)
            raise StoreUnavailable(f"Milvus at {self.uri}: {message_of(error)}") from error

    def _load(self) -> None:
        for collection in COLLECTIONS:
            self._open_client().load_collection(self._target(collection.name))


def _all_but_refused(work: Callable[[list[T]], object], values: list[T]) -> list[tuple[T, Exception]]:
    try:
        work(values)
        return []
    except (MilvusException, RpcError) as error:
        if not _is_refusal(error):
            raise
        if len(values) == 1:
            return [(values[0], error)]
    middle = len(values) // 2
    return _all_but_refused(work, values[:middle]) + _all_but_refused(work, values[middle:])


def _is_refusal(error: MilvusException | RpcError) -> bool:
    if isinstance(error, MilvusException):
        return isinstance(error, DataNotMatchException | ParamError) or error.code in _REFUSALS
    # half of a message may fit
    return error.code() is StatusCode.RESOURCE_EXHAUSTED and "larger than max" in (error.details() or "")


def _clip(text: str, limit: int) -> str:
    encoded = text.encode("utf-8", "replace")  # Milvus refuses lone surrogates: write question marks
    return encoded[:limit].decode("utf-8", "ignore")
