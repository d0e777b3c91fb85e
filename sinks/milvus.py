"""Milvus: failure patterns, judgments and memory items, each a collection.

Rows have deterministic string ids, `<tenant>/<id>`, and are written by upsert, so writing twice changes nothing (an
`auto_id` would make a second row). The tenant is the partition key. `body` is the public form of the row, as JSON; `state`
what its single writer needs to merge more into it. All else are columns to filter by.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from grpc import RpcError
from pymilvus import DataType, MilvusClient, MilvusException

from fleetlore.encoder import StaticEncoder
from fleetlore.errors import ConfigError, StoreUnavailable
from sinks.metrics import Metrics

T = TypeVar("T")

MAX_ROWS_PER_CALL = 1_000  # Milvus Lite writes 3 times as many rows a second in thousands as in hundreds
MAX_IDS_PER_GET = 500
TIMEOUT_SECONDS = 30.0
ENCODER_PROPERTY = "fleetlore.encoder"
PARTITIONS = 16  # of a collection: tenants are spread over them by hash

# pymilvus pings every 10 s; a gRPC server allows one ping in 5 minutes on an idle connection and then closes it.
GRPC_OPTIONS = {"grpc.keepalive_time_ms": 300_000, "grpc.keepalive_permit_without_calls": 0}

# pymilvus logs every failed call with its trace; the caller of this module gets the error and says it once.
logging.getLogger("pymilvus").setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class Collection:
    """One collection: its name and the columns it can be filtered by, each with its largest length in bytes."""

    name: str
    columns: tuple[tuple[str, int], ...]


COLLECTIONS = (
    Collection("patterns", (("level", 16), ("tool", 256), ("error_class", 256))),
    Collection("judgments", (("task", 1024), ("agent", 1024), ("label", 16), ("source", 32))),
    Collection("items", (("kind", 16), ("tool", 256), ("pattern", 64), ("task", 1024))),
)
_BY_NAME = {collection.name: collection for collection in COLLECTIONS}


def row_id(tenant: str, id: str) -> str:
    """Primary key of a row; a tenant's name has no slash."""
    return f"{tenant}/{id}"


class MilvusStore:
    """The three collections. Its calls run in threads, because pymilvus blocks.

    Every method raises `StoreUnavailable` where Milvus does not answer or refuses for a reason that may pass.
    """

    def __init__(self, uri: str, token: str, encoder: StaticEncoder, metrics: Metrics) -> None:
        self._uri, self._token = uri, token
        self._encoder = encoder
        self._metrics = metrics
        self._client: MilvusClient | None = None

    async def open(self) -> None:
        """Connect, and create the collections that are missing.

        Raises:
            ConfigError: a collection was filled with another encoder: its vectors mean something else.
        """
        await self._call(self._create)

    async def close(self) -> None:
        if self._client is not None:
            await asyncio.to_thread(self._client.close)
            self._client = None

    async def upsert(self, collection: str, rows: Sequence[dict[str, Any]]) -> None:
        """Write rows; `text` of each is embedded into its vector. The last of several rows with one id wins."""
        unique = list({row["id"]: row for row in rows}.values())
        with self._metrics.sink_duration(collection).time():
            for start in range(0, len(unique), MAX_ROWS_PER_CALL):
                chunk = unique[start : start + MAX_ROWS_PER_CALL]
                await self._call(partial(self._upsert, collection, chunk))
        self._metrics.sink_rows(collection).inc(len(unique))

    async def get(self, collection: str, ids: Sequence[str], *fields: str) -> dict[str, dict[str, Any]]:
        """Rows by id, with the fields asked for; ids that are not there are left out."""
        found: dict[str, dict[str, Any]] = {}
        for start in range(0, len(ids), MAX_IDS_PER_GET):
            chunk = list(ids[start : start + MAX_IDS_PER_GET])
            rows = await self._call(partial(self._get, collection, chunk, fields))
            found.update((row["id"], row) for row in rows)
        return found

    async def rows(self, collection: str, tenant: str, *fields: str) -> AsyncIterator[dict[str, Any]]:
        """All rows of a tenant, in no order."""
        iterator = await self._call(
            lambda: self._open_client().query_iterator(
                collection, batch_size=1000, filter=f'tenant == "{tenant}"', output_fields=["id", *fields]
            )
        )
        try:
            while page := await self._call(iterator.next):
                for row in page:
                    yield _opened(row)
        finally:
            await self._call(iterator.close)

    async def search(
        self, collection: str, tenant: str, text: str, limit: int, condition: str = ""
    ) -> list[tuple[float, bytes]]:
        """The `limit` rows nearest to a text: (cosine similarity, body), best first."""
        [vector] = self._encoder.encode([text])
        clause = f'tenant == "{tenant}"' + (f" and ({condition})" if condition else "")
        hits = await self._call(
            lambda: self._open_client().search(collection, [vector], limit=limit, filter=clause, output_fields=["body"])
        )
        return [(hit["distance"], hit["entity"]["body"].encode()) for hit in hits[0]]

    def _upsert(self, collection: str, rows: list[dict[str, Any]]) -> None:
        vectors = self._encoder.encode([row["text"] for row in rows])
        columns = _BY_NAME[collection].columns
        data = [
            {
                "id": row["id"],
                "tenant": row["tenant"],
                "body": row["body"],
                "state": _pack(row.get("state", "")),
                "vector": vector,
                **{name: _clip(row.get(name) or "", length) for name, length in columns},
            }
            for row, vector in zip(rows, vectors, strict=True)
        ]
        self._open_client().upsert(collection, data, timeout=TIMEOUT_SECONDS)

    def _get(self, collection: str, ids: list[str], fields: tuple[str, ...]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._open_client().get(collection, ids, output_fields=["id", *fields])
        return [_opened(row) for row in found]

    def _open_client(self) -> MilvusClient:
        if self._client is None:
            self._client = MilvusClient(
                uri=self._uri, token=self._token, timeout=TIMEOUT_SECONDS, grpc_options=GRPC_OPTIONS
            )
        return self._client

    def _create(self) -> None:
        client = self._open_client()
        encoder = f"encoder {self._encoder.name} {self._encoder.sha256}"
        for collection in COLLECTIONS:
            if not client.has_collection(collection.name):
                self._create_one(client, collection, encoder)
            made_with = client.describe_collection(collection.name)["properties"].get(ENCODER_PROPERTY)
            if made_with and made_with != encoder:
                raise ConfigError(
                    f"collection {collection.name!r} was filled with {made_with}, this process has {encoder}"
                )
            # A restarted Milvus Lite has its collections on disk only, and answers nothing from there.
            client.load_collection(collection.name)

    def _create_one(self, client: MilvusClient, collection: Collection, encoder: str) -> None:
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=1100)
        schema.add_field("tenant", DataType.VARCHAR, max_length=64, is_partition_key=True)
        for name, length in collection.columns:
            schema.add_field(name, DataType.VARCHAR, max_length=length)
        schema.add_field("body", DataType.VARCHAR, max_length=65_535)
        schema.add_field("state", DataType.VARCHAR, max_length=65_535)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self._encoder.dimensions)
        index = client.prepare_index_params()
        index.add_index("vector", index_type="AUTOINDEX", metric_type="COSINE")
        client.create_collection(
            collection.name,
            schema=schema,
            index_params=index,
            num_partitions=PARTITIONS,
            # A row must be found by the very next query: a stage reads what it wrote before a rebalance.
            consistency_level="Strong",
            # Not in the schema's description, which Milvus Lite forgets.
            properties={ENCODER_PROPERTY: encoder},
        )

    async def _call(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except (MilvusException, RpcError) as error:
            raise StoreUnavailable(f"Milvus at {self._uri}: {getattr(error, 'message', error)}") from error


def _pack(state: str) -> str:
    """pymilvus takes 75 µs for each kilobyte of a row, and a state is several of them: packed it is a fifth."""
    return b64encode(zlib.compress(state.encode(), 1)).decode() if state else ""


def _opened(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it was written."""
    if row.get("state"):
        return {**row, "state": zlib.decompress(b64decode(row["state"])).decode()}
    return row


def _clip(text: str, limit: int) -> str:
    """Cut to `limit` bytes of UTF-8, which is what Milvus counts, without splitting a character."""
    encoded = text.encode()
    return text if len(encoded) <= limit else encoded[:limit].decode("utf-8", "ignore")
