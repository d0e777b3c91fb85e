"""Make an adapter version again from the sessions that its manifest names, to compare it with what was published."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiokafka import TopicPartition

from fleetlore.cluster import Bootstrap
from fleetlore.config import Settings
from fleetlore.errors import AdapterRefused, BrokerUnavailable, ConfigError
from fleetlore.kafka.read import end_offsets, observer, read_to_end, read_until
from fleetlore.wire.adapter_manifest import CallsManifest, ProceduralManifest
from fleetlore.wire.topics import topic

if TYPE_CHECKING:
    from fleetlore.adapters.registry import RegistryView
    from fleetlore.wire.adapter_manifest import Place
    from fleetlore.wire.trajectory import Judgment


@dataclass(frozen=True, slots=True)
class Remade:
    """What came out: `version` as it is published and `remade`, the hash of the weights that its sessions give.

    parent, updates, torch: of the LoRA, which is made on from its parent in updates; the call model is learned anew.
    """

    adapter: str
    version: str
    remade: str
    sessions: int
    parent: str | None = None
    updates: int = 0
    torch: str = ""

    @property
    def same(self) -> bool:
        return self.version == self.remade


async def remade(
    settings: Settings, tenant: str, version: str, adapter: str | None = None, timeout_seconds: float = 60.0
) -> Remade:
    """Make the version again.

    Raises:
        ConfigError: no such version, or what it was made from is no longer kept.
        AdapterRefused: it cannot be made again here.
        BrokerUnavailable: the broker did not answer in time.
    """
    from fleetlore.adapters.registry import RegistryView
    from fleetlore.adapters.signatures import public_keys

    trusted = public_keys(settings.public_key)
    calls = RegistryView(CallsManifest, tenant, trusted)
    procedural = RegistryView(ProceduralManifest, tenant, trusted)
    names = {topic(tenant, f"adapters.{kind}"): f"adapters.{kind}" for kind in ("weights", "manifests")}
    records = await read_to_end(settings.cluster, names, timeout_seconds)
    for record in sorted(records, key=lambda each: names[each.topic]):  # manifests say which weights to keep
        for registry in (calls, procedural):
            with contextlib.suppress(AdapterRefused):  # somebody else's: no agent takes it either
                registry.take(names[record.topic], record.key or b"", record.value)
    known: list[CallsManifest | ProceduralManifest] = [*calls.versions.values(), *procedural.versions.values()]
    matching = [
        manifest
        for manifest in known
        if version and manifest.version.startswith(version) and adapter in (None, manifest.name)
    ]
    if len(matching) != 1:
        raise ConfigError(f"{len(matching)} published versions begin with {version!r}")
    (manifest,) = matching
    if isinstance(manifest, CallsManifest):
        return await _remade_calls(settings, manifest, timeout_seconds)
    return await _remade_lora(settings, procedural, manifest, timeout_seconds)


async def _remade_calls(settings: Settings, manifest: CallsManifest, timeout_seconds: float) -> Remade:
    """Learn the window of the records that the manifest names."""
    from models.calls.training import train
    from models.calls.window import SessionWindow
    from streams.training.calls import trajectories_of

    window = SessionWindow()
    stops = {TopicPartition(each.topic, each.partition): each.stop for each in manifest.data}
    try:
        async with asyncio.timeout(timeout_seconds), observer(settings.cluster) as reader:
            ends = await end_offsets(reader, stops)
            begins = await reader.beginning_offsets(list(stops))
            for each in manifest.data:
                partition = TopicPartition(each.topic, each.partition)
                if each.start < begins[partition] or each.stop > ends[partition]:
                    raise ConfigError(f"{each.topic}[{each.partition}] no longer holds what it was made from")
                reader.seek(partition, each.start)
            async for records in read_until(reader, stops):
                for record in records:
                    if record.offset < stops[TopicPartition(record.topic, record.partition)]:
                        for session in trajectories_of(record):
                            window.add(session, record.partition, record.offset)
    except TimeoutError as error:
        raise BrokerUnavailable(f"{settings.broker} did not give the sessions in {timeout_seconds:g} s") from error
    chosen = window.chosen()
    weights = train(each.session() for each in chosen).weights
    return Remade(manifest.name, manifest.version, hashlib.sha256(weights).hexdigest(), len(chosen), manifest.parent)


async def _remade_lora(
    settings: Settings,
    registry: RegistryView[ProceduralManifest],
    manifest: ProceduralManifest,
    timeout_seconds: float,
) -> Remade:
    """Train the batches that the manifest names on its parent."""
    import torch

    from fleetlore.adapters.blob_store import BlobStore
    from fleetlore.retrieval.encoder import shared_encoder
    from fleetlore.risk.network import load_base
    from models.adapter.reproduce import reproduce

    torch.set_num_threads(1)  # two threads add up in another order than one, and another last bit is another hash
    parent = registry.weights(manifest.parent) if manifest.parent else None
    reference = registry.reference(manifest.parent) if manifest.parent else None
    if reference is not None:
        parent = BlobStore(settings.weights_storage).fetch(reference, manifest.most_bytes)
    if manifest.parent and parent is None:
        raise ConfigError(f"its parent {manifest.parent[:12]} is no longer kept")
    sessions = await _sessions(settings.cluster, manifest.tenant, manifest, timeout_seconds)
    weights = reproduce(manifest, parent, sessions, load_base(settings.base), shared_encoder())
    return Remade(
        adapter=manifest.name,
        version=manifest.version,
        remade=hashlib.sha256(weights).hexdigest(),
        parent=manifest.parent,
        updates=len(manifest.batches),
        sessions=len(sessions),
        torch=manifest.torch,
    )


async def _sessions(
    bootstrap: Bootstrap, tenant: str, manifest: ProceduralManifest, timeout_seconds: float
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
