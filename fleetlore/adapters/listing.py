"""List the present versions, channels and agents on the adapter topics, as unverified dicts for display."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import orjson

from fleetlore.adapters.blob_store import sha256_of
from fleetlore.cluster import Bootstrap
from fleetlore.kafka.read import read_to_end
from fleetlore.wire.topics import topic


@dataclass(frozen=True, slots=True)
class Listed:
    """A version for display. Any release may have published it, so no field is certain.

    Attributes:
        channels: channels that run it, a canary with its share; and `revoked`.
        pinned: channels that the trainer leaves alone.
        running, refused: agents that loaded it, and agents that refused it, with reasons.
        lineage: the version and its ancestors. A deleted ancestor has only its name.
    """

    manifest: dict[str, Any]
    adapter: str
    version: str
    ordinal: int
    created: float
    channels: tuple[str, ...]
    pinned: frozenset[str]
    running: tuple[str, ...]
    refused: tuple[str, ...]
    metrics: tuple[tuple[str, float], ...]
    lineage: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AdapterListing:
    """manifests: oldest first. pointers: the valid one of each channel. acks: the newest of each agent and adapter.
    revocations: of versions and keys."""

    manifests: tuple[dict[str, Any], ...]
    pointers: tuple[dict[str, Any], ...]
    acks: tuple[dict[str, Any], ...]
    revocations: tuple[dict[str, Any], ...] = ()

    def of(self, adapter: str) -> AdapterListing:
        manifests = tuple(manifest for manifest in self.manifests if manifest.get("name") == adapter)
        pointers = tuple(pointer for pointer in self.pointers if pointer.get("name") == adapter)
        acks = tuple(ack for ack in self.acks if ack.get("adapter") == adapter)
        return AdapterListing(manifests, pointers, acks, self.revocations)

    def versions(self) -> list[Listed]:
        acks: defaultdict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for ack in self.acks:
            running, refused = acks[str(ack.get("version"))]
            if ack.get("result") == "applied":
                running.append(str(ack.get("agent")))
            else:
                refused.append(f"{ack.get('agent')} ({ack.get('result')})")
        revoked = {str(each.get("what")) for each in self.revocations}
        parents = {str(each.get("version", "")): each.get("parent") for each in self.manifests}
        found = []
        for manifest in self.manifests:
            version, metrics = str(manifest.get("version", "")), manifest.get("metrics")
            pointers = [each for each in self.pointers if each.get("version") == version]
            lineage = [version]
            while (parent := parents.get(lineage[-1])) is not None and str(parent) not in lineage:
                lineage.append(str(parent))
            figures = metrics.items() if isinstance(metrics, dict) else ()
            found.append(
                Listed(
                    manifest,
                    str(manifest.get("name", "")),
                    version,
                    int(_number(manifest.get("ordinal"))),
                    float(_number(manifest.get("created"))),
                    (*sorted(map(_channel, pointers)), *["revoked"] * (version in revoked)),
                    frozenset(_channel(each) for each in pointers if each.get("pinned") is True),
                    tuple(sorted(acks[version][0])),
                    tuple(sorted(acks[version][1])),
                    tuple(sorted((str(name), float(n)) for name, n in figures if isinstance(n, int | float))),
                    tuple(lineage),
                )
            )
        return found


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0


def _channel(pointer: dict[str, Any]) -> str:
    share, name = pointer.get("share"), str(pointer.get("channel"))
    return f"{name} {share:.0%}" if name == "canary" and isinstance(share, int | float) else name


async def read_adapters(bootstrap: Bootstrap, tenant: str, timeout_seconds: float = 10.0) -> AdapterListing:
    """Read the tenant's adapter topics to their end. Missing topics are empty. Raises BrokerUnavailable on time-out."""
    kinds = {topic(tenant, f"adapters.{kind}"): kind for kind in ("manifests", "pointers", "acks")}
    found: dict[str, dict[bytes, dict[str, Any]]] = {kind: {} for kind in kinds.values()}
    for record in await read_to_end(bootstrap, kinds, timeout_seconds):
        kind, key = kinds[record.topic], record.key or b""
        if record.value is None:
            found[kind].pop(key, None)
            continue
        try:
            value = orjson.loads(record.value)
        except orjson.JSONDecodeError:
            continue
        if not isinstance(value, dict) or not all(
            isinstance(value.get(n, 0), int | float) for n in ("epoch", "created")
        ):
            continue
        known = found[kind].get(key)
        # Readers follow the first of two pointers with one epoch.
        if kind != "pointers" or known is None or value.get("epoch", 0) > known.get("epoch", 0):
            found[kind][key] = value
    manifests = sorted(found["manifests"].values(), key=lambda manifest: (manifest.get("created", 0), str(manifest)))
    revocations = tuple(value for key, value in found["pointers"].items() if key.startswith(b"revoked/"))
    pointers = [value for key, value in found["pointers"].items() if not key.startswith(b"revoked/")]
    # A canary older than the stable pointer has ended.
    stable = {p.get("name"): p.get("epoch", 0) for p in pointers if p.get("channel") == "stable"}
    followed = (p for p in pointers if p.get("channel") != "canary" or p.get("epoch", 0) > stable.get(p.get("name"), 0))
    return AdapterListing(tuple(manifests), tuple(followed), tuple(found["acks"].values()), revocations)


async def read_weights(bootstrap: Bootstrap, tenant: str, adapter: str, timeout_seconds: float = 10.0) -> bytes | None:
    """Return the weights on the channel `stable`, or None if there are none or they are in a blob store."""
    listing = (await read_adapters(bootstrap, tenant, timeout_seconds)).of(adapter)
    version = next((str(each.get("version")) for each in listing.pointers if each.get("channel") == "stable"), "")
    if not version or any(each.get("what") == version for each in listing.revocations):
        return None
    records = await read_to_end(bootstrap, [topic(tenant, "adapters.weights")], timeout_seconds)
    found = next((each.value for each in reversed(records) if each.key == version.encode()), None)
    return found if found is not None and sha256_of(found) == version else None
