"""Make an adapter version again from the sessions that its manifest names, to compare it with what was published."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from aiokafka import TopicPartition

from fleetlore.adapters.registry import RegistryView
from fleetlore.adapters.signatures import public_keys
from fleetlore.config import Settings
from fleetlore.errors import AdapterRefused, BrokerUnavailable, ConfigError
from fleetlore.kafka.read import end_offsets, observer, read_to_end, read_until
from fleetlore.wire.adapter_manifest import AdapterManifest, CallsManifest, RetrievalManifest
from fleetlore.wire.topics import topic
from fleetlore.wire.trajectory import Trajectory
from models.calls.window import SessionWindow
from streams.training.retrieval import learned, newest_cases, teaches
from streams.training.window import trajectories_of


@dataclass(frozen=True, slots=True)
class _Remade:
    """What came out: `version` as it is published and `remade`, the hash of the weights that its sessions give."""

    adapter: str
    version: str
    remade: str
    sessions: int

    @property
    def same(self) -> bool:
        return self.version == self.remade


async def remade(
    settings: Settings, tenant: str, version: str, adapter: str | None = None, timeout_seconds: float = 60.0
) -> _Remade:
    """Learn the version anew from the window of records that its manifest names.

    Raises:
        ConfigError: no such version, or what it was made from is no longer kept.
        BrokerUnavailable: the broker did not answer in time.
    """
    manifest = await _published(settings, tenant, version, adapter, timeout_seconds)
    sessions = await _window(settings, manifest, timeout_seconds)
    weights = await asyncio.to_thread(_learned, manifest, sessions)
    return _Remade(manifest.name, manifest.version, hashlib.sha256(weights).hexdigest(), manifest.sessions)


async def _published(
    settings: Settings, tenant: str, version: str, adapter: str | None, timeout_seconds: float
) -> AdapterManifest:
    trusted = public_keys(settings.public_key)
    views: list[RegistryView[AdapterManifest]] = [
        RegistryView(kind, tenant, trusted) for kind in (CallsManifest, RetrievalManifest)
    ]
    names = {topic(tenant, f"adapters.{kind}"): f"adapters.{kind}" for kind in ("weights", "manifests")}
    records = await read_to_end(settings.cluster, names, timeout_seconds)
    for record in sorted(records, key=lambda each: names[each.topic]):  # manifests say which weights to keep
        for view in views:
            with contextlib.suppress(AdapterRefused):  # somebody else's: no agent takes it either
                view.take(names[record.topic], record.key or b"", record.value)
    matching = [
        manifest
        for view in views
        for manifest in view.versions.values()
        if version and manifest.version.startswith(version) and adapter in (None, manifest.name)
    ]
    if len(matching) != 1:
        raise ConfigError(f"{len(matching)} published versions begin with {version!r}")
    return matching[0]


def _learned(manifest: AdapterManifest, sessions: Sequence[Trajectory]) -> bytes:
    if isinstance(manifest, CallsManifest):
        from models.calls.training import train as train_calls

        return train_calls(sessions).weights
    candidate = learned([case for case, _ in newest_cases(sessions)])
    return candidate.weights if candidate is not None else b""


async def _window(settings: Settings, manifest: AdapterManifest, timeout_seconds: float) -> list[Trajectory]:
    """The sessions of the records that the manifest names, as a trainer chooses them."""
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
                            if manifest.name != RetrievalManifest.name or teaches(session):
                                window.add(session, record.partition, record.offset)
    except TimeoutError as error:
        raise BrokerUnavailable(f"{settings.broker} did not give the sessions in {timeout_seconds:g} s") from error
    return [each.session() for each in window.chosen()]
