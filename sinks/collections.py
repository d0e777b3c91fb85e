"""Define Milvus' collections and switch between their versions (blue/green).

A version is one set of all collections, named `patterns_NAME` and so on. The plain names are aliases of the live one.
"""

from collections import defaultdict
from dataclasses import dataclass

import fleetlore.recall.without_pandas  # noqa: F401

# isort: split
from pymilvus import DataType, Function, FunctionType, MilvusClient, MilvusException

from fleetlore.errors import ConfigError
from fleetlore.fingerprint.fingerprint import VERSION as PATTERNS
from fleetlore.recall.encoder import Encoder
from fleetlore.recall.search import MADE_BY, TEXT, VECTOR, WORDS, encoder_mark

__all__ = [
    "COLLECTIONS", "FIRST_VERSION", "MAX_FIELD_BYTES", "alias_of", "can_be_id", "check_collections", "check_droppable",
    "drop_version", "is_live", "list_versions", "look_at_collections", "make_live", "row_counts",
]  # fmt: skip

FIRST_VERSION = "main"
# Raise it when columns or texts of a collection change.
_SCHEMA = 5
_UNNAMED = "an earlier schema"
TEXT_BYTES = 8_192
MAX_FIELD_BYTES = 65_535
# Earlier releases' ids were longer.
_MAX_ID_BYTES = 1_100
# Milvus spreads tenants over the partitions of a collection by hash.
_PARTITIONS = 16


@dataclass(frozen=True, slots=True)
class Collection:
    name: str
    columns: tuple[tuple[str, int], ...]
    by_words: bool = False
    by_meaning: bool = False


COLLECTIONS = (
    Collection("patterns", (("level", 16), ("tool", 256), ("error_class", 256)), by_words=True),
    Collection("judgments", (("session", 1024), ("task", 1024), ("agent", 1024), ("label", 16), ("source", 32))),
    Collection("items", (("kind", 16), ("tool", 256), ("pattern", 64), ("task", 1024)), by_words=True, by_meaning=True),
)

# Milvus requires a vector field (milvus-io/milvus#33853, #52065), and Milvus Lite refuses an empty sparse one. So
# unsearched rows carry the smallest dense one.
PLACEHOLDER = (1.0, 0.0)


def versioned_name(collection: str, version: str) -> str:
    return f"{collection}_{version}"


def alias_of(name: str) -> str:
    return name.partition("_")[0]


def can_be_id(text: str) -> bool:
    try:
        return 0 < len(text.encode()) <= _MAX_ID_BYTES
    except UnicodeEncodeError:
        return False


def create_collections(client: MilvusClient, encoder: Encoder | None, version: str | None) -> bool:
    """Create the missing collections of a version, or of the live one. Return whether any was missing."""
    created = False
    for collection in COLLECTIONS:
        made_by = _made_by(collection, encoder)
        name = collection.name if version is None else versioned_name(collection.name, version)
        if not client.has_collection(name):
            real = versioned_name(collection.name, version or FIRST_VERSION)
            # A process may have died between a collection and its alias.
            if not client.has_collection(real):
                _create(client, real, collection, encoder)
                created = True
            if version is None:
                try:
                    client.create_alias(real, name)
                except MilvusException:
                    # another worker may have created it
                    if not client.has_collection(name):
                        raise
        _check_made_by(client, name, made_by)
        # A restarted Milvus Lite must load its collections before queries.
        client.load_collection(name)
    return created


def check_collections(client: MilvusClient, encoder: Encoder | None) -> str:
    for collection in COLLECTIONS:
        if not client.has_collection(collection.name):
            raise ConfigError(f"there is no collection {collection.name!r}")
        _check_made_by(client, collection.name, _made_by(collection, encoder))
    searched = f"encoder {encoder.name} {encoder.sha256[:12]}" if encoder else "searched by words"
    return f"{len(COLLECTIONS)} collections of schema {_SCHEMA}, {searched}"


@dataclass(frozen=True, slots=True)
class Found:
    missing: tuple[str, ...]
    other: tuple[str, ...]
    versions: frozenset[str]
    made_by: str
    target: str


def look_at_collections(client: MilvusClient, encoder: Encoder | None) -> Found:
    missing, other, versions, made_by = list[str](), list[str](), set[str](), ""
    for collection in COLLECTIONS:
        if not client.has_collection(collection.name):
            missing.append(collection.name)
            continue
        client.load_collection(collection.name)
        described = client.describe_collection(collection.name)
        versions.add(described["collection_name"].partition("_")[2])
        if (found := described["properties"].get(MADE_BY, _UNNAMED)) != _made_by(collection, encoder):
            made_by = made_by or found
            other.append(collection.name)
    searched = encoder.sha256[:8] if encoder else "words"
    names = [f"s{_SCHEMA}p{PATTERNS}_{searched}{end}" for end in ("", "_again")]
    # Missing collections need a new version. An interrupted switch continues.
    target = next((each for each in names if each not in versions), names[-1]) if missing else names[0]
    return Found(tuple(missing), tuple(other), frozenset(versions), made_by, target)


def _check_made_by(client: MilvusClient, name: str, made_by: str) -> None:
    made_with = client.describe_collection(name)["properties"].get(MADE_BY, _UNNAMED)
    if made_with != made_by:
        raise ConfigError(
            f"collection {name!r} was filled with {made_with}, this process has {made_by}. Only a worker with the "
            "extra `[meaning]` has an encoder. `fleetlore up` makes the collection again by itself. Beside a cluster "
            "stop the workers, then `fleetlore backfill run NAME` and `fleetlore backfill switch NAME` fill a new one "
            "from the events"
        )


def _made_by(collection: Collection, encoder: Encoder | None) -> str:
    # Row ids are pattern ids, which change with the fingerprint's version.
    schema = f"schema {_SCHEMA}, patterns {PATTERNS}"
    return schema + encoder_mark(encoder) if encoder and collection.by_meaning else schema


def list_versions(client: MilvusClient) -> dict[str, bool]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for real in client.list_collections():
        for collection in COLLECTIONS:
            if real.startswith(f"{collection.name}_"):
                found[real.removeprefix(f"{collection.name}_")].add(collection.name)
    complete = sorted(name for name, collections in found.items() if len(collections) == len(COLLECTIONS))
    return {name: is_live(client, name) for name in complete}


def is_live(client: MilvusClient, version: str) -> bool:
    return any(
        client.has_collection(collection.name)
        and client.describe_collection(collection.name)["collection_name"] == versioned_name(collection.name, version)
        for collection in COLLECTIONS
    )


def make_live(client: MilvusClient, version: str) -> None:
    """Point the aliases to a version. Call it again after an error."""
    for collection in COLLECTIONS:
        move = client.alter_alias if client.has_collection(collection.name) else client.create_alias
        move(versioned_name(collection.name, version), collection.name)


def row_counts(client: MilvusClient, version: str | None = None) -> dict[str, int]:
    counts = {}
    for collection in COLLECTIONS:
        name = collection.name if version is None else versioned_name(collection.name, version)
        counts[collection.name] = 0
        if client.has_collection(name):
            client.load_collection(name)
            counts[collection.name] = int(client.query(name, output_fields=["count(*)"])[0]["count(*)"])
    return counts


def check_droppable(client: MilvusClient, version: str) -> None:
    """Raise ConfigError if the version is (partly) live or does not exist."""
    if is_live(client, version):
        raise ConfigError(f"collection version {version!r} is live")
    if not any(client.has_collection(versioned_name(each.name, version)) for each in COLLECTIONS):
        raise ConfigError(f"there is no collection version {version!r}")


def drop_version(client: MilvusClient, version: str) -> None:
    check_droppable(client, version)
    for collection in COLLECTIONS:
        client.drop_collection(versioned_name(collection.name, version))


def _create(client: MilvusClient, name: str, collection: Collection, encoder: Encoder | None) -> None:
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=_MAX_ID_BYTES)
    schema.add_field("tenant", DataType.VARCHAR, max_length=64, is_partition_key=True)
    for column, length in collection.columns:
        schema.add_field(column, DataType.VARCHAR, max_length=length)
    schema.add_field("body", DataType.VARCHAR, max_length=MAX_FIELD_BYTES)
    schema.add_field("state", DataType.VARCHAR, max_length=MAX_FIELD_BYTES)
    index = client.prepare_index_params()
    if collection.by_words:
        schema.add_field(TEXT, DataType.VARCHAR, max_length=TEXT_BYTES, enable_analyzer=True)
        schema.add_field(WORDS, DataType.SPARSE_FLOAT_VECTOR)
        schema.add_function(Function("bm25", FunctionType.BM25, [TEXT], [WORDS]))
        index.add_index(WORDS, index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
    embedded = encoder if collection.by_meaning else None
    if embedded or not collection.by_words:
        schema.add_field(VECTOR, DataType.FLOAT_VECTOR, dim=embedded.dimensions if embedded else len(PLACEHOLDER))
        index.add_index(VECTOR, index_type="AUTOINDEX", metric_type="COSINE")
    client.create_collection(
        name,
        schema=schema,
        index_params=index,
        num_partitions=_PARTITIONS,
        # A stage reads what was written before a rebalance.
        consistency_level="Strong",
        # Milvus Lite loses the schema's description
        properties={MADE_BY: _made_by(collection, encoder)},
    )
