"""`fleetlore adapters verify VERSION`: make a version again from the log and see that it is the same, to the byte."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer
from aiokafka import TopicPartition

from fleetlore.cli.app import group
from fleetlore.cli.options import Broker, Data, Json, Tenant, Timeout, Version, connection
from fleetlore.cli.output import ask, print_json
from fleetlore.config import Settings
from fleetlore.errors import AdapterRefused, BrokerUnavailable, ConfigError
from fleetlore.kafka.read import end_offsets, observer, read_to_end, read_until
from fleetlore.wire.adapter_manifest import ProceduralManifest
from fleetlore.wire.topics import topic

if TYPE_CHECKING:
    from fleetlore.wire.adapter_manifest import Place
    from fleetlore.wire.trajectory import Judgment


@dataclass(frozen=True, slots=True)
class Remade:
    """What came out: `version` as it is published and `remade`, the hash of the weights that its batches give."""

    version: str
    remade: str
    parent: str | None
    updates: int
    sessions: int
    torch: str

    @property
    def same(self) -> bool:
        return self.version == self.remade


def register(app: typer.Typer) -> None:
    """Add the command to the group `adapters` (entry point `adapters.verify`)."""
    group(app, "adapters").command("verify")(verify)


def verify(
    version: Version,
    broker: Broker = None,
    data: Data = None,
    tenant: Tenant = "default",
    timeout: Timeout = 60.0,
    as_json: Json = False,
) -> None:
    """Train a version again from its parent and recorded sessions. Exit code 1 if the weights differ."""
    found = ask(remade(connection(broker, data), tenant, version, timeout))
    if as_json:
        print_json({name: getattr(found, name) for name in found.__dataclass_fields__} | {"same": found.same})
    else:
        made = f"{found.updates} updates with {found.sessions} sessions over {(found.parent or 'the base')[:12]}"
        typer.echo(f"{made} give {found.remade[:12]}: {'the same' if found.same else 'NOT THE SAME'}.")
    if not found.same:
        raise typer.Exit(1)


async def remade(settings: Settings, tenant: str, version: str, timeout_seconds: float = 60.0) -> Remade:
    """Make the version again.

    Raises:
        ConfigError: no such version, or what it was made from is no longer kept.
        AdapterRefused: it cannot be made again here.
        BrokerUnavailable: the broker did not answer in time.
    """
    import hashlib

    import torch

    from fleetlore.adapters.blob_store import BlobStore
    from fleetlore.adapters.registry import RegistryView
    from fleetlore.adapters.signatures import public_keys
    from fleetlore.risk.encoder import shared_encoder
    from fleetlore.risk.network import load_base
    from models.adapter.reproduce import reproduce

    torch.set_num_threads(1)  # two threads add up in another order than one, and another last bit is another hash
    registry = RegistryView(ProceduralManifest, tenant, public_keys(settings.public_key))
    names = {topic(tenant, f"adapters.{kind}"): f"adapters.{kind}" for kind in ("weights", "manifests")}
    for record in await read_to_end(settings.broker, names, timeout_seconds):
        try:
            registry.take(names[record.topic], record.key or b"", record.value)
        except AdapterRefused:
            continue  # somebody else's: no agent takes it either
    matching = [known for known in registry.versions if version and known.startswith(version)]
    if len(matching) != 1:
        raise ConfigError(f"{len(matching)} published versions begin with {version!r}")
    manifest = registry.versions[matching[0]]
    parent = registry.weights(manifest.parent) if manifest.parent else None
    reference = registry.reference(manifest.parent) if manifest.parent else None
    if reference is not None:
        parent = BlobStore(settings.weights_storage).fetch(reference)
    if manifest.parent and parent is None:
        raise ConfigError(f"its parent {manifest.parent[:12]} is no longer kept")
    sessions = await _sessions(settings.broker, tenant, manifest, timeout_seconds)
    weights = reproduce(manifest, parent, sessions, load_base(settings.base), shared_encoder())
    return Remade(
        version=manifest.version,
        remade=hashlib.sha256(weights).hexdigest(),
        parent=manifest.parent,
        updates=len(manifest.batches),
        sessions=len(sessions),
        torch=manifest.torch,
    )


async def _sessions(
    bootstrap: str, tenant: str, manifest: ProceduralManifest, timeout_seconds: float
) -> dict[Place, Judgment]:
    """The sessions that the manifest names, from the log."""
    from streams.training.judgment_log import judgments_of

    wanted = {place._replace(window=0) for batch in manifest.batches for place in batch.places}
    offsets: dict[TopicPartition, set[int]] = defaultdict(set)
    for place in wanted:
        offsets[TopicPartition(topic(tenant, "judgments"), place.partition)].add(place.offset)
    found: dict[Place, Judgment] = {}
    try:
        async with asyncio.timeout(timeout_seconds), observer(bootstrap) as reader:
            ends = await end_offsets(reader, offsets)
            begins = await reader.beginning_offsets(list(offsets))
            for partition, some in offsets.items():
                if min(some) < begins[partition] or max(some) >= ends[partition]:
                    raise ConfigError(f"{partition.topic}[{partition.partition}] no longer holds what it was made from")
                reader.seek(partition, min(some))
            async for records in read_until(reader, {partition: max(some) + 1 for partition, some in offsets.items()}):
                for record in records:
                    found |= {place: judgment for judgment, place in judgments_of(record) if place in wanted}
    except TimeoutError as error:
        raise BrokerUnavailable(f"{bootstrap} did not give the judgments in {timeout_seconds:g} s") from error
    if len(found) < len(wanted):
        raise ConfigError(f"{len(wanted) - len(found)} of the sessions it was made from are no longer kept")
    return found
