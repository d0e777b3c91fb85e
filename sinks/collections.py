"""The collections of Milvus, and their generations.

A generation is one set of all collections, called `patterns_NAME` and so on; readers and writers know the plain names, which are
aliases of the generation that is live. So a backfill fills a generation of its own, beside the live one, and then takes the
names over.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from pymilvus import DataType, MilvusClient, MilvusException

from fleetlore.errors import ConfigError
from fleetlore.risk.encoder import Encoder

FIRST_GENERATION = "main"
ENCODER_PROPERTY = "fleetlore.risk.encoder"
PARTITIONS = 16  # of a collection: tenants are spread over them by hash


@dataclass(frozen=True, slots=True)
class Collection:
    """One collection.

    Attributes:
        columns: what it can be filtered by, each with its largest length in bytes.
        dimensions: of its vectors. The encoder is trained so that the first dimensions of a vector are a vector of the same
            text (Matryoshka: Kusupati et al. 2022). Items, which agents search, have all of them; of the others there are a
            hundred times as many, and half of what a row costs an embedded Milvus is its 256 floats.
    """

    name: str
    columns: tuple[tuple[str, int], ...]
    dimensions: int


COLLECTIONS = (
    Collection("patterns", (("level", 16), ("tool", 256), ("error_class", 256)), 64),
    Collection("judgments", (("task", 1024), ("agent", 1024), ("label", 16), ("source", 32)), 64),
    Collection("items", (("kind", 16), ("tool", 256), ("pattern", 64), ("task", 1024)), 256),
)


def generation_name(collection: str, generation: str) -> str:
    """What a collection is really called."""
    return f"{collection}_{generation}"


def create_collections(client: MilvusClient, encoder: Encoder, generation: str | None) -> bool:
    """Create the collections of a generation that are missing, or of the live one (None); return whether any was.

    Raises:
        ConfigError: a collection was filled with another encoder: its vectors mean something else.
    """
    made_by = f"encoder {encoder.name} {encoder.sha256}"
    created = False
    for collection in COLLECTIONS:
        name = collection.name if generation is None else generation_name(collection.name, generation)
        if not client.has_collection(name):
            real = generation_name(collection.name, generation or FIRST_GENERATION)
            # It may be there without its alias, where a process died between the two.
            if not client.has_collection(real):
                _create(client, real, collection, made_by)
                created = True
            if generation is None:
                _name(client, real, name)
        made_with = client.describe_collection(name)["properties"].get(ENCODER_PROPERTY)
        if made_with and made_with != made_by:
            raise ConfigError(f"collection {name!r} was filled with {made_with}, this process has {made_by}")
        # A restarted Milvus Lite has its collections on disk only, and answers nothing from there.
        client.load_collection(name)
    return created


def list_generations(client: MilvusClient) -> dict[str, bool]:
    """All complete generations, and whether each is live."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for real in client.list_collections():
        for collection in COLLECTIONS:
            if real.startswith(f"{collection.name}_"):
                found[real.removeprefix(f"{collection.name}_")].add(collection.name)
    complete = sorted(name for name, collections in found.items() if len(collections) == len(COLLECTIONS))
    return {name: is_live(client, name) for name in complete}


def is_live(client: MilvusClient, generation: str) -> bool:
    """Whether at least one name stands for it."""
    return any(
        client.has_collection(collection.name)
        and client.describe_collection(collection.name)["collection_name"]
        == generation_name(collection.name, generation)
        for collection in COLLECTIONS
    )


def make_live(client: MilvusClient, generation: str) -> None:
    """Give the plain names to a generation, one after the other; calling it again after an error ends what was begun."""
    for collection in COLLECTIONS:
        client.alter_alias(generation_name(collection.name, generation), collection.name)


def drop_generation(client: MilvusClient, generation: str) -> None:
    """Drop a generation's collections.

    Raises:
        ConfigError: it is live, in full or in part.
    """
    if is_live(client, generation):
        raise ConfigError(f"generation {generation!r} is live")
    for collection in COLLECTIONS:
        client.drop_collection(generation_name(collection.name, generation))


def _name(client: MilvusClient, real: str, name: str) -> None:
    try:
        client.create_alias(real, name)
    except MilvusException:
        # Several workers start at once, and another one was quicker.
        if not client.has_collection(name):
            raise


def _create(client: MilvusClient, name: str, collection: Collection, made_by: str) -> None:
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=1100)
    schema.add_field("tenant", DataType.VARCHAR, max_length=64, is_partition_key=True)
    for column, length in collection.columns:
        schema.add_field(column, DataType.VARCHAR, max_length=length)
    schema.add_field("body", DataType.VARCHAR, max_length=65_535)
    schema.add_field("state", DataType.VARCHAR, max_length=65_535)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=collection.dimensions)
    index = client.prepare_index_params()
    index.add_index("vector", index_type="AUTOINDEX", metric_type="COSINE")
    client.create_collection(
        name,
        schema=schema,
        index_params=index,
        num_partitions=PARTITIONS,
        # A row must be found by the very next query: a stage reads what it wrote before a rebalance.
        consistency_level="Strong",
        # Not in the schema's description, which Milvus Lite forgets.
        properties={ENCODER_PROPERTY: made_by},
    )
