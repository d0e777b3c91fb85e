"""Find the adapter versions that have learned of erased sessions, revoke them and delete their weights.

A version of the call model or of the retrieval adapter says which records it learned from, a LoRA of a language model
which sessions. Where the records of a session have left the log, a version that was made after the session is taken for
one that learned from it. The trainer, which hears of the erasure too, learns new versions without.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetlore.config import Settings
from fleetlore.lora.learned_from import unpack
from fleetlore.wire.adapter_manifest import ADAPTERS, AdapterManifest, LanguageModelManifest
from sinks.adapter_publisher import AdapterPublisher
from streams.offline.erase.found import Found

_REASON = "it learned from what was erased"


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
            mine = [each for each in registry.kept.values() if has_learned(each, found)]
            mine.sort(key=lambda each: -each.ordinal)
            learned += [f"{kind.name}/{each.version}" for each in mine]
            # The newest last: until then its place is not taken by another one that has learned of it.
            for each in reversed(mine) if erase else ():
                if not registry.revoked(each.version):
                    await publisher.revoke(tenant, each.version, _REASON)
                await publisher.delete(registry, each)
    return learned


def has_learned(version: AdapterManifest, found: Found) -> bool:
    """Whether a version has learned of an erased session, for all that is known."""
    if isinstance(version, LanguageModelManifest):
        erased = {each for of_session in found.hashes.values() for each in of_session}
        if version.learned_from:
            return not erased.isdisjoint(unpack(version.learned_from))
        return _after(version, [each for each in found.ended.values() if each > 0.0])
    ranges = {each.partition: each for each in version.data}
    places = found.positions.get("trajectories", set())
    held = any(p in ranges and ranges[p].start <= offset < ranges[p].stop for p, offset, _ in places)
    return held or _after(version, found.ended_unplaced("trajectories"))


def _after(version: AdapterManifest, ended: Sequence[float]) -> bool:
    return any(version.created >= each for each in ended)
