"""Find the adapter versions that have learned of erased sessions, revoke them and delete their weights.

A version of the call model says which records it learned from, a LoRA which sessions, and its children inherit them.
Where the records of a session have left the log, or a parent's manifest has gone, a version that was made after the
session is taken for one that learned from it. The trainer, which hears of the erasure too, learns new versions without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetlore.config import Settings
from fleetlore.lora.learned_from import unpack
from fleetlore.wire.adapter_manifest import (
    ADAPTERS,
    AdapterManifest,
    CallsManifest,
    LanguageModelManifest,
    ProceduralManifest,
)
from sinks.adapter_publisher import AdapterPublisher
from streams.offline.erase.found import Found

REASON = "it learned from what was erased"


async def learned_versions(settings: Settings, tenant: str, found: Found, *, erase: bool) -> list[str]:
    """Return the versions that have learned of it, the newest first, revoked and deleted where that is asked for.

    None where no key is set to sign with: revocations come from where the key is.

    Raises:
        BrokerUnavailable: the broker does not answer; run it again.
    """
    if not settings.signing_key or not found.parts:
        return []
    learned: list[str] = []
    for kind in ADAPTERS:
        async with AdapterPublisher.from_settings(kind, settings) as publisher:
            registry = await publisher.published(tenant)
            # Those that were revoked before are still there too: the topics keep the newest record of a key for ever.
            mine = [each for each in registry.kept.values() if has_learned(each, registry.kept, found)]
            mine.sort(key=lambda each: -each.ordinal)
            learned += [f"{kind.name}/{each.version}" for each in mine]
            # The newest last: until then its place is not taken by another one that has learned of it.
            for each in reversed(mine) if erase else ():
                if not registry.revoked(each.version):
                    await publisher.revoke(tenant, each.version, REASON)
                await publisher.delete(registry, each)
    return learned


def has_learned(version: AdapterManifest, known: Mapping[str, AdapterManifest], found: Found) -> bool:
    """Whether a version, or one that it goes back to, has learned of an erased session, for all that is known."""
    if isinstance(version, CallsManifest):
        ranges = {each.partition: each for each in version.data}
        places = found.positions.get("trajectories", set())
        held = any(p in ranges and ranges[p].start <= offset < ranges[p].stop for p, offset, _ in places)
        return held or _after(version, found.ended_unplaced("trajectories"))
    if isinstance(version, LanguageModelManifest):
        erased = {each for of_session in found.hashes.values() for each in of_session}
        if version.learned_from:
            return not erased.isdisjoint(unpack(version.learned_from))
        return _after(version, [each for each in found.ended.values() if each > 0.0])
    assert isinstance(version, ProceduralManifest)
    places = found.positions.get("judgments", set())
    if any(tuple(place[:3]) in places for batch in version.batches for place in batch.places):
        return True
    if _after(version, found.ended_unplaced("judgments")):
        return True
    if version.parent is None:
        return False
    parent = known.get(version.parent)
    if parent is None:
        return _after(version, [each for each in found.ended.values() if each > 0.0])
    return has_learned(parent, known, found)


def _after(version: AdapterManifest, ended: Sequence[float]) -> bool:
    return any(version.created >= each for each in ended)
