"""List what the adapter topics hold now: versions, which of them each channel runs, which agents have loaded them.

For people and scripts: plain dicts as they were published, nothing verified.
"""

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
    """A version for people. Published by somebody, perhaps by another release: no field is certain.

    Attributes:
        channels: that run it, a canary with its share; and `revoked` where it is.
        pinned: those of its channels that the trainer leaves alone.
        running, refused: agents that have loaded it, and that have not, each with why.
        metrics: what the gate measured, by name: what is a number of it.
        lineage: the version and its ancestors; of one that is no longer kept only the name is left.
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
    """manifests: oldest first. pointers: the newest of each channel that is followed.

    acks: the newest of each agent and adapter. revocations: of versions and of keys.
    """

    manifests: tuple[dict[str, Any], ...]
    pointers: tuple[dict[str, Any], ...]
    acks: tuple[dict[str, Any], ...]
    revocations: tuple[dict[str, Any], ...] = ()

    def of(self, adapter: str) -> AdapterListing:
        """What is listed of one adapter; revocations are of all."""
        manifests = tuple(manifest for manifest in self.manifests if manifest.get("name") == adapter)
        pointers = tuple(pointer for pointer in self.pointers if pointer.get("name") == adapter)
        acks = tuple(ack for ack in self.acks if ack.get("adapter") == adapter)
        return AdapterListing(manifests, pointers, acks, self.revocations)

    def versions(self) -> list[Listed]:
        """The versions, oldest first."""
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
    """Read the tenant's adapter topics to their end; topics that do not exist are empty.

    Raises BrokerUnavailable when that takes longer than `timeout_seconds`.
    """
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
        # Of two pointers with one epoch the first is followed.
        if kind != "pointers" or known is None or value.get("epoch", 0) > known.get("epoch", 0):
            found[kind][key] = value
    manifests = sorted(found["manifests"].values(), key=lambda manifest: (manifest.get("created", 0), str(manifest)))
    revocations = tuple(value for key, value in found["pointers"].items() if key.startswith(b"revoked/"))
    pointers = [value for key, value in found["pointers"].items() if not key.startswith(b"revoked/")]
    # A canary that is older than the stable pointer is over.
    stable = {p.get("name"): p.get("epoch", 0) for p in pointers if p.get("channel") == "stable"}
    followed = (p for p in pointers if p.get("channel") != "canary" or p.get("epoch", 0) > stable.get(p.get("name"), 0))
    return AdapterListing(tuple(manifests), tuple(followed), tuple(found["acks"].values()), revocations)


async def read_weights(bootstrap: Bootstrap, tenant: str, adapter: str, timeout_seconds: float = 10.0) -> bytes | None:
    """Read the weights that agents on the channel `stable` run; None without any, or where they lie elsewhere.

    Raises BrokerUnavailable when that takes longer than `timeout_seconds`.
    """
    listing = (await read_adapters(bootstrap, tenant, timeout_seconds)).of(adapter)
    version = next((str(each.get("version")) for each in listing.pointers if each.get("channel") == "stable"), "")
    if not version or any(each.get("what") == version for each in listing.revocations):
        return None
    records = await read_to_end(bootstrap, [topic(tenant, "adapters.weights")], timeout_seconds)
    found = next((each.value for each in reversed(records) if each.key == version.encode()), None)
    return found if found is not None and sha256_of(found) == version else None
