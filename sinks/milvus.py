"""Store failure patterns, judgments and memory items in Milvus, each in its own collection.

Rows have deterministic string ids, `<tenant>/<id>`, and are upserted, so writing twice changes nothing (an `auto_id`
would make a second row). The tenant is the partition key. `body` is the public form of the row, as JSON; `state` is
what its single writer needs to merge more into it. All other columns are there to filter by.

Each name is an alias, so that a backfill can fill collections of its own and take over the names (`sinks.collections`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from math import inf
from typing import Any, Self, TypeVar

import fleetlore.store.without_pandas  # noqa: F401

# isort: split
from grpc import RpcError, StatusCode
from pymilvus import DataType, MilvusClient, MilvusException
from pymilvus.exceptions import DataNotMatchException, ParamError

from fleetlore.clock import Clock, SystemClock
from fleetlore.config import Settings
from fleetlore.errors import RowRefused, StoreUnavailable
from fleetlore.retrieval.encoder import Encoder, shared_encoder
from fleetlore.store.connection import connect, message_of
from fleetlore.store.search import DIMENSIONS, TEXT, VECTOR, quoted
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

__all__ = ["RESOLVE_SECONDS", "MilvusStore", "row_id"]

log = logging.getLogger(__name__)

T = TypeVar("T")

# Milvus Lite writes three times as many rows a second in thousands as in hundreds.
MAX_ROWS_PER_CALL = 1_000
_MAX_IDS_PER_GET = 500
# An id that no row has: each begins with a tenant's name.
_NO_ROW = "/"
_TIMEOUT_SECONDS = 30.0
_ROWS_PER_PAGE = 1_000
_OPEN_PAUSE_SECONDS = 0.2
# Milvus returns at most 16,384 rows a page.
_IDS_PER_PAGE = 16_000
RESOLVE_SECONDS = 2.0
REFRESH_SECONDS = 1.0
_DETAIL_CHARACTERS = 500

# Error codes of a row that Milvus will never take: invalid, missing or too large parameter, no such field, invalid
# field name, invalid data; 6 is Milvus Lite's code for all of them. Every other code may pass: no collection, no quota,
# no leader.
_REFUSALS = frozenset({1100, 1101, 1102, 1700, 1701, 1804, 6})

# Of a collection that is not in memory, as after a restart of the store: a request does not bring it back.
_NOT_LOADED = 101

_COLLECTIONS = {each.name: each for each in COLLECTIONS}


def row_id(tenant: str, id: str) -> str:
    """Return the primary key of a row; a tenant's name has no slash."""
    return f"{tenant}/{id}"


class MilvusStore:
    """The three collections. Its calls run in threads, because pymilvus blocks.

    Args:
        metrics: that its writes are counted in; none where nobody scrapes them.
        version: version of the collections to use; None for the live one.
        write_seconds: the deadline of a write.
        check: called directly before each write; what it raises, the write raises.

    Every method raises `StoreUnavailable` if Milvus does not answer, or refuses for a reason that may pass.
    """

    def __init__(
        self,
        uri: str,
        token: str,
        encoder: Encoder,
        metrics: Metrics | None = None,
        version: str | None = None,
        *,
        clock: Clock | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
        write_seconds: float = _TIMEOUT_SECONDS,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._uri, self._token = uri, token
        self._clock = clock or SystemClock()
        self._timeout_seconds = timeout_seconds
        self._write_seconds = min(write_seconds, timeout_seconds)
        self._check = check
        self._encoder = encoder
        self._metrics = metrics or Metrics("store")
        self._version = version
        self._client: MilvusClient | None = None
        self._schemas: dict[str, dict[str, Any]] = {}
        self._resolved: dict[str, tuple[float, str]] = {}
        self._asked: dict[str, asyncio.Task[tuple[float, str]]] = {}

    @classmethod
    def from_settings(
        cls, settings: Settings, metrics: Metrics | None = None, version: str | None = None, **options: Any
    ) -> MilvusStore:
        """Make the store that the settings name, with the encoder that all of its vectors are made with."""
        return cls(settings.milvus, settings.milvus_token, shared_encoder(), metrics, version, **options)

    async def open(self) -> bool:
        """Connect, and create the missing collections; return whether any was missing.

        Raises:
            ConfigError: a collection has another schema, or vectors of another encoder, which mean something else.
        """
        return await self.on_client(lambda client: create_collections(client, self._encoder, self._version))

    async def open_within(
        self, seconds: float, waiting: Callable[[StoreUnavailable], None] = lambda error: None
    ) -> None:
        """Open, and try again for so long: Milvus may be starting, or another process be creating the collections.

        Args:
            waiting: called with the error of each try but the last.
        """
        last = self._clock.monotonic() + seconds
        while True:
            try:
                await self.open()
                return
            except StoreUnavailable as error:
                if self._clock.monotonic() > last:
                    raise
                waiting(error)
            await asyncio.sleep(_OPEN_PAUSE_SECONDS)

    async def has_collections(self) -> bool:
        """Whether the live collections are there; none is created."""
        return await self.on_client(lambda client: all(client.has_collection(each.name) for each in COLLECTIONS))

    async def close(self) -> None:
        """Disconnect."""
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
        self._asked.clear()
        if self._client is not None:
            await asyncio.to_thread(self._client.close)
            self._client = None

    async def __aenter__(self) -> Self:
        """Enter without connecting: the first request, or `open`, does."""
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def on_client(self, work: Callable[[MilvusClient], T]) -> T:
        """Run a function of `sinks.collections`."""
        return await self._call(lambda: work(self._open_client()))

    async def resolve(self, collection: str) -> str:
        """Return the collection behind the alias; `get` uses that one until the next call.

        A writer calls it before it reads what it will write back, and writes to what it returned. So a row read from
        one version is never written to another, though the write may be made long after, and a switch reaches every
        writer with its first batch after `RESOLVE_SECONDS`.
        """
        if self._version is not None:
            return versioned_name(collection, self._version)
        known, asked = self._resolved.get(collection), self._asked.get(collection)
        if asked is not None and asked.done():
            del self._asked[collection]
            # Stored only here: a row read under one name may not be written under another. An outage shows below.
            if asked.exception() is None:
                known = self._resolved[collection] = asked.result()
        age = inf if known is None else self._clock.monotonic() - known[0]
        if known is None or age >= RESOLVE_SECONDS:
            known = self._resolved[collection] = await self._ask(collection)
        elif age >= REFRESH_SECONDS and collection not in self._asked:
            # Asked before the answer is too old: Milvus may be busy with a write, and a new failure would wait behind
            # it.
            self._asked[collection] = asyncio.create_task(self._ask(collection))
        return known[1]

    async def _ask(self, collection: str) -> tuple[float, str]:
        now = self._clock.monotonic()
        described = await self._call(lambda: self._open_client().describe_collection(collection))
        return now, described["collection_name"]

    async def upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None:
        """Write rows; `text` of each is what it is found by, where it is. The last of several rows of one id wins.

        Args:
            collection: an alias, or what `resolve` returned for it.

        Raises:
            RowRefused: Milvus will never take some of the rows; all others are written.
        """
        unique = list({row["id"]: row for row in rows}.values())
        refused: list[tuple[str, str]] = []
        alias = alias_of(collection)
        with self._metrics.sink_duration(alias).time():
            for start in range(0, len(unique), MAX_ROWS_PER_CALL):
                chunk = unique[start : start + MAX_ROWS_PER_CALL]
                refused += await self._call(partial(self._upsert, collection, chunk))
        self._metrics.sink_rows(alias).inc(len(unique) - len(refused))
        if refused:
            raise RowRefused(collection, tuple(id for id, _ in refused), refused[0][1])

    async def get(self, collection: str, ids: Sequence[str], *fields: str) -> dict[str, dict[str, Any]]:
        """Return rows by id, with the fields asked for; missing ids are left out.

        An id that Milvus refuses to look for counts as missing: its session must not stop all others.
        """
        found: list[dict[str, Any]] = []

        def read(chunk: list[str]) -> None:
            filter, named = _among(chunk), ["id", *fields]
            found.extend(self._open_client().query(self._target(collection), filter=filter, output_fields=named))

        for id, detail in await self._by_ids(read, ids):
            log.error("%s has no row %r: Milvus at %s refuses to look for it: %s", collection, id, self._uri, detail)
        wanted = set(ids)
        return {row["id"]: row for row in found if row["id"] in wanted}

    async def delete(self, collection: str, ids: Sequence[str]) -> None:
        """Delete rows by id; missing ids are passed over.

        Raises:
            RowRefused: Milvus refuses to look for some of the rows; all others are deleted.
        """

        def delete(chunk: list[str]) -> None:
            self._open_client().delete(self._target(collection), filter=_among(chunk))

        if refused := await self._by_ids(delete, ids):
            raise RowRefused(collection, tuple(id for id, _ in refused), refused[0][1])

    async def _by_ids(self, work: Callable[[list[str]], object], ids: Sequence[str]) -> list[tuple[str, str]]:
        """Ask for rows by id, a chunk at a time; return (id, reason) of the ids that Milvus refuses."""

        def ask(chunk: list[str]) -> list[tuple[str, str]]:
            refused = _all_but_refused(work, chunk)
            if refused:
                work([_NO_ROW])  # if this is refused as well, the ids are not the reason
            return [(id, message_of(error)[:_DETAIL_CHARACTERS]) for id, error in refused]

        possible = [id for id in ids if can_be_id(id)]
        refused: list[tuple[str, str]] = []
        for start in range(0, len(possible), _MAX_IDS_PER_GET):
            refused += await self._call(partial(ask, possible[start : start + _MAX_IDS_PER_GET]))
        return refused

    async def purge(self) -> bool:
        """Have Milvus write what it has taken and compact its files, so that deleted rows leave them.

        The embedded store is through with it then (`streams.embedded.milvus_server`). True: a cluster, which goes on.
        """

        def flush_and_compact(client: MilvusClient) -> bool:
            for collection in COLLECTIONS:
                name = client.describe_collection(self._target(collection.name))["collection_name"]
                client.flush(name)
                client.compact(name)
            return not str(client.get_server_version()).startswith("milvus_lite")

        return await self.on_client(flush_and_compact)

    async def rows(self, collection: str, tenant: str, *fields: str, **equal: str) -> AsyncIterator[dict[str, Any]]:
        """Yield all rows of a tenant whose columns are `equal` to what is asked for, in no order."""
        condition = " and ".join(f"{name} == {quoted(value)}" for name, value in {"tenant": tenant, **equal}.items())
        target = self._target(collection)
        if target in _COLLECTIONS:
            target = (await self._ask(collection))[1]  # all pages are of one version
        last = ""

        def page() -> list[dict[str, Any]]:
            # pymilvus' own iterator writes the last id of a page into its next filter unescaped.
            found: list[dict[str, Any]] = self._open_client().query(
                target,
                filter=f"id > {quoted(last)} and {condition}",
                output_fields=["id", *fields],
                # Ids alone are short, and an embedded Milvus scans all rows for every page.
                limit=_ROWS_PER_PAGE if fields else _IDS_PER_PAGE,
                # The page is the first one in the order of the ids.
                iterator="True",
                reduce_stop_for_best="True",
            )
            return found

        while rows := await self._call(page):
            for row in rows:
                yield row
            last = rows[-1]["id"]

    def _upsert(self, collection: str, rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
        """Write rows; return (id, reason) of the refused ones.

        `state` is not compressed: zlib would cost the client more than the larger row costs client and server.
        """
        shape = _COLLECTIONS[alias_of(collection)]
        ready = [
            {
                "id": row["id"],
                "tenant": row["tenant"],
                "body": row["body"],
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
        if not shape.by_meaning:
            return [{TEXT: text} for text in texts]
        vectors = self._encoder.encode(texts)[:, :DIMENSIONS].tolist()
        return [{TEXT: text, VECTOR: vector} for text, vector in zip(texts, vectors, strict=True)]

    def _send(self, target: str, rows: list[dict[str, Any]]) -> None:
        """Upsert column by column, by the call under pymilvus' ORM.

        `MilvusClient.upsert` turns rows into columns itself and takes ten times the CPU for a row of 2 KB, because it
        checks a string character by character.
        """
        client = self._open_client()
        if target not in self._schemas:
            self._schemas[target] = client.describe_collection(target)
        columns = [
            {
                "name": name,
                "type": DataType.FLOAT_VECTOR if name == VECTOR else DataType.VARCHAR,
                "values": [row[name] for row in rows],
            }
            for name in rows[0]
        ]
        self._check()
        client._get_connection().upsert(
            target,
            columns,
            timeout=self._write_seconds,
            schema=self._schemas[target],
            context=client._generate_call_context(),
        )

    def _target(self, collection: str) -> str:
        if collection not in _COLLECTIONS:
            return collection  # it is resolved
        if self._version is not None:
            return versioned_name(collection, self._version)
        known = self._resolved.get(collection)
        return known[1] if known else collection

    def _open_client(self) -> MilvusClient:
        if self._client is None:
            self._client = connect(self._uri, self._token, self._timeout_seconds)
        return self._client

    async def _call(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except (MilvusException, RpcError) as error:
            if getattr(error, "code", None) == _NOT_LOADED:
                with contextlib.suppress(MilvusException, RpcError):
                    await asyncio.to_thread(self._load)
            raise StoreUnavailable(f"Milvus at {self._uri}: {message_of(error)}") from error

    def _load(self) -> None:
        for collection in COLLECTIONS:
            self._open_client().load_collection(self._target(collection.name))


def _among(ids: Sequence[str]) -> str:
    return f"id in [{', '.join(map(quoted, ids))}]"


def _all_but_refused(work: Callable[[list[T]], object], values: list[T]) -> list[tuple[T, Exception]]:
    """Do work on values and return those that Milvus refuses, which one by one is found out: one stops no other."""
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
    if isinstance(error, DataNotMatchException | ParamError):
        return True
    if isinstance(error, MilvusException):
        return error.code in _REFUSALS
    # A message may be too large for the server; half of it may not be.
    return error.code() is StatusCode.RESOURCE_EXHAUSTED and "larger than max" in (error.details() or "")


def _clip(text: str, limit: int) -> str:
    """Cut to `limit` bytes of UTF-8, which is what Milvus counts, without splitting a character."""
    encoded = text.encode("utf-8", "replace")  # half a surrogate pair, which Milvus refuses, becomes a question mark
    return encoded[:limit].decode("utf-8", "ignore")
